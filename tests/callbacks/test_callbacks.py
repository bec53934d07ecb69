"""Callbacks: what they read, how they end a stage, and what they may not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from assay import callbacks
from assay.callbacks import Callbacks, StageHistory
from assay.callbacks.stop_early import stop_early
from assay.config.load_settings import load_plan
from assay.errors import SettingsError, UserError
from assay.trackers.jsonl import read_steps
from assay.train.folder import StageFolder
from assay.train.run import StageRun
from assay.train.stages import PlanOutcome, run_plan
from assay.viewer.folders import RunsFolder
from tests.policies import run_settings

PLUGIN = '''
"""Ends a stage at a step, and writes down what it reads."""

from assay.callbacks import StageHistory, callback


@callback
def ends_at(history: StageHistory, *, step: int) -> str:
    """Ends a stage at a step, if it has rollouts."""
    with open(history.folder.parent / "asked.txt", "a") as file:
        steps, groups = [int(row["step"]) for row in history.steps], len(history.groups)
        file.write(f"{history.stage} {steps} {groups} {history.total_steps}\\n")
    return "it is enough" if history.groups and history.steps[-1]["step"] >= step else ""
'''
PLAN = """
trackers = ["jsonl"]
steps = 6
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "drills:train", limit = 4 }
judge.allow_weak_isolation = true
rollout = { tasks_per_step = 2, group_size = 2, max_tokens = 4 }
evaluate = { tasks = "drills:test", limit = 2, samples = 1, max_tokens = 4, before = false }
[stages.first]
algorithm.name = "grpo"
callbacks.ends_at.step = 2
[stages.next]
algorithm.name = "sft"
steps = 1
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file is one plug-in in a process, however many runs name it."""
    file = tmp_path_factory.mktemp("plugins") / "ends_at.py"
    file.write_text(PLUGIN)
    return file


def run(folder: Path, plugin: Path, *words: str, plan: str = PLAN) -> PlanOutcome:
    (folder / "plan.toml").write_text(f'plugins = ["{plugin}"]\n{plan}')
    return run_plan(load_plan(folder / "plan.toml", ["--folder", str(folder / "runs"), *words]))


def history_of(*values: float) -> StageHistory:
    history = StageHistory("grpo", Path(), 100)
    for step, value in enumerate(values, 1):
        history.add(step, {"reward/pass_rate": value})
    return history


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((), False),
        ((0.5, 0.5), False),  # two values are no more than the patience
        ((0.5, 0.4, 0.5), True),  # as good as the best is no better
        ((0.5, 0.4, 0.51), False),
        ((0.1, 0.6, 0.2, 0.3), True),
        ((0.1, 0.6, 0.2, 0.7), False),
    ],
)
def test_a_stage_stops_early_after_so_many_values_that_are_no_better(
    values: tuple[float, ...], ends: bool
) -> None:
    reason = stop_early(history_of(*values), patience=2)
    assert bool(reason) == ends
    assert not ends or f"the best is {max(values[:-2]):.4g}" in reason


@pytest.mark.parametrize(
    ("metric", "offer"),
    [
        ("reward/pas_rate", "did you mean 'reward/pass_rate'?"),
        ("pass_rate", "did you mean 'reward/pass_rate'?"),
        ("something", "docs/metrics.md lists the names"),
    ],
)
def test_a_metric_that_never_comes_is_warned_of_once_with_a_near_name(
    metric: str, offer: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = StageHistory(f"stage of {metric}", tmp_path, 100)
    for step in range(1, 30):
        history.add(step, {"reward/pass_rate": 0.5, "loss": 1.0})
        assert stop_early(history, metric=metric) == ""
        assert bool(caplog.messages) == (step >= 10)
    (line,) = caplog.messages
    assert line.endswith(f"waits for the metric {metric!r}, which no step has had so far; {offer}")


def test_a_metric_of_evaluations_may_come_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = StageHistory("late", tmp_path, 100)
    for step in range(1, 51):
        history.add(step, {"loss": 1.0})
        assert bool(caplog.messages) == (step > 50)
        stop_early(history, metric="evaluate/pass@1")
    assert len(caplog.messages) == 1


def test_where_the_lowest_is_the_best_a_rising_metric_ends_the_stage() -> None:
    rising = history_of(0.1, 0.2, 0.3)
    assert stop_early(rising, patience=2, lowest_is_best=True)
    assert not stop_early(rising, patience=2)


def test_a_callback_ends_its_stage_which_is_saved_and_evaluated_and_the_next_one_begins(
    tmp_path: Path, plugin: Path
) -> None:  # fmt: skip
    outcome = run(tmp_path, plugin)
    assert outcome.finished
    assert [evaluation.name for evaluation in outcome.evaluations] == ["first", "next"]
    stage = tmp_path / "runs/run/first"
    rows = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert "evaluate/pass@1" in rows[-1]
    assert [path.name for path in stage.glob("**/step_*") if path.is_dir()] == ["step_000002"]
    event = json.loads((stage / "events.jsonl").read_text())
    assert (event["event"], event["step"], event["text"]) == ("ended", 2, "ends_at: it is enough")
    asked = (tmp_path / "runs/run/asked.txt").read_text().splitlines()
    assert asked == ["first [1] 2 6", "first [1, 2] 2 6", "first [1, 2] 0 6"]


def test_the_same_command_again_leaves_an_ended_stage_as_it_is(
    tmp_path: Path, plugin: Path
) -> None:  # fmt: skip
    run(tmp_path, plugin)
    stage = tmp_path / "runs/run/first"
    before = (stage / "metrics.jsonl").read_text(), (stage / "events.jsonl").read_text()
    assert run(tmp_path, plugin).finished
    assert ((stage / "metrics.jsonl").read_text(), (stage / "events.jsonl").read_text()) == before


def test_a_stage_that_ended_takes_no_other_rate(tmp_path: Path, plugin: Path) -> None:
    run(tmp_path, plugin)
    with pytest.raises(SettingsError, match=r"made with other settings \(optimizer\.lr"):
        run(tmp_path, plugin, "--stages.first.optimizer.lr", "0.5")


def test_a_stage_that_was_killed_before_its_last_evaluation_makes_it_and_takes_no_more_steps(
    tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StageRun, "evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, plugin)
    stage = tmp_path / "runs/run/first"
    with (stage / "events.jsonl").open("a") as file:
        file.write('{"step": 2, "ev')  # half a line
    assert run(tmp_path, plugin).finished
    rows = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert "evaluate/pass@1" in rows[-1]


def test_a_resumed_callback_reads_the_steps_that_are_saved_and_no_others(tmp_path: Path) -> None:
    stage = StageFolder(run_settings(name="r", stage="s", folder=str(tmp_path)))
    stage.path.mkdir(parents=True)
    metrics = stage.path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "time": 9, "a": 1}\n{"step": 2, "time": 9, "a": 2}\n{"st')
    stage.open(1)
    history = StageHistory("s", stage.path, 5)
    history.resume(read_steps(metrics))
    assert history.steps == [{"step": 1, "a": 1}]


def test_callbacks_without_the_tracker_that_keeps_the_steps_are_refused() -> None:
    with pytest.raises(ValidationError, match='need "jsonl" in `trackers`'):
        run_settings(callbacks={"stop_early": {}}, trackers=["console"])


def test_values_that_are_not_finite_are_none() -> None:
    assert history_of(float("nan"), 0.5, float("inf"), 0.25).values("reward/pass_rate") == [
        0.5, 0.25,
    ]  # fmt: skip


def test_a_stage_that_ended_goes_on_where_its_callback_says_so_later(
    tmp_path: Path, plugin: Path
) -> None:  # fmt: skip
    first = PLAN.partition("[stages.next]")[0]
    for step in (2, 4):
        changed = first.replace("ends_at.step = 2", f"ends_at.step = {step}")
        assert run(tmp_path, plugin, plan=changed).finished
        made = RunsFolder(tmp_path / "runs").by_name["run"]
        assert made.finished
        assert made.stages["first"].place["step"] == step
        assert (tmp_path / f"runs/run/first/checkpoints/step_{step:06d}").is_dir()


def test_a_callback_that_raises_or_returns_no_text_is_named_with_what_to_do() -> None:
    def divides(history: StageHistory) -> str:
        return str(1 / 0)

    def agrees(history: StageHistory) -> bool:
        return True

    with pytest.raises(UserError, match=r"callback 'divides' raised ZeroDivisionError.*fix it"):
        Callbacks({"divides": divides})(history_of(0.5))
    with pytest.raises(UserError, match=r"callback 'agrees' returned a bool; return why"):
        Callbacks({"agrees": agrees})(history_of(0.5))


def test_what_no_callback_takes_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"unknown callback 'stop_earl'; .*'stop_early'"):
        callbacks.build({"stop_earl": {}})
    with pytest.raises(SettingsError, match="patience"):
        callbacks.build({"stop_early": {"patience": 0}})
    with pytest.raises(SettingsError, match=r"patienc.*patience"):
        callbacks.build({"stop_early": {"patienc": 3}})
