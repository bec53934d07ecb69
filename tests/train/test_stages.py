"""Stages of a plan: what each starts from, and what evaluations are called."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from assay.config.load_settings import load_evaluation, load_plan
from assay.errors import SettingsError, UserError
from assay.evaluate import evaluate
from assay.progress import Progress
from assay.train import stages
from assay.train.folder import StageFolder
from assay.train.stages import PlanOutcome, run_plan

PLAN = """
trackers = ["jsonl"]
steps = 1
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "drills:train", limit = 4 }
judge.allow_weak_isolation = true
algorithm.name = "sft"
dataset.batch_size = 2
evaluate = { tasks = "drills:test", limit = 2, samples = 1, max_tokens = 4, before = false }
[stages.first]
"""


def run(folder: Path, text: str, *words: str) -> PlanOutcome:
    (folder / "plan.toml").write_text(text)
    settings = ["--folder", str(folder / "runs"), *words]
    return run_plan(load_plan(folder / "plan.toml", settings))


@pytest.mark.long
def test_a_stage_that_continues_has_no_evaluation_before_and_one_that_starts_anew_its_own(
    tmp_path: Path,
) -> None:
    text = f'{PLAN}[stages.next]\n[stages.other]\npolicy.model = "tiny"\n'
    outcome = run(tmp_path, text, "--evaluate.before", "true")
    names = [one.name for one in outcome.evaluations]
    assert names == ["base", "first", "next", "other base", "other"]


def test_what_shows_progress_does_not_keep_the_model_of_a_stage_or_an_evaluation(
    tmp_path: Path,
) -> None:
    progress = Progress(io.StringIO())
    (tmp_path / "plan.toml").write_text(PLAN)
    plan = load_plan(tmp_path / "plan.toml", ["--folder", str(tmp_path / "runs")])
    outcome = run_plan(plan, progress=progress)
    after_stage = progress.tokens
    words = ["--model", str(outcome.model), "--tasks", "drills:test", "--evaluate.limit", "1"]
    short = {"model": "policy.model", "tasks": "evaluate.tasks"}
    run = load_evaluation(None, [*words, "--evaluate.samples", "1"], short)
    weak = {"judge": run.judge.model_copy(update={"allow_weak_isolation": True})}
    evaluate(run.model_copy(update=weak), folder=tmp_path / "eval", progress=progress)
    assert (after_stage, progress.tokens) == (int, int)


@pytest.mark.long
def test_a_stage_evaluates_on_each_set_sampled_and_greedy_and_again_without_doubling_rows(
    tmp_path: Path,
) -> None:
    sets = ("--evaluate.tasks", '["drills:test", "drills:longer"]', "--evaluate.greedy", "true")
    once = sets
    outcome = run(tmp_path, PLAN, *once)
    rows = [(one.tasks_spec, one.temperature) for one in outcome.evaluations]
    assert rows == [
        ("drills:test", 1.0), ("drills:test", 0.0), ("drills:longer", 1.0), ("drills:longer", 0.0)
    ]  # fmt: skip
    lines = (tmp_path / "runs/run/first/metrics.jsonl").read_text().splitlines()
    names = {name for line in lines for name in json.loads(line) if "pass@1" in name}
    assert names == {"evaluate/pass@1"} | {
        f"evaluate/pass@1/{name}"
        for name in ("drills:test, greedy", "drills:longer", "drills:longer, greedy")
    }
    again = run(tmp_path, PLAN, *once, "--evaluate.samples", "2")
    assert [one.samples for one in again.evaluations] == [2, 1, 2, 1]


def test_without_a_checkpoint_the_start_of_other_settings_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "_run_stage", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, PLAN)
    stage = tmp_path / "runs/run/first"
    assert json.loads((stage / "start/config.json").read_text())["hidden_size"] == 32
    (stage / "evaluated.json").write_text("{}")
    outcome = run(tmp_path, PLAN, "--policy.tiny.width", "64", "--seed", "5")
    assert outcome.model
    assert json.loads((outcome.model / "config.json").read_text())["hidden_size"] == 64


@pytest.mark.long
def test_a_finished_run_is_evaluated_on_the_tasks_that_it_was_not_evaluated_on(
    tmp_path: Path,
) -> None:
    run(tmp_path, PLAN)
    outcome = run(tmp_path, PLAN, "--evaluate.tasks", "drills:train")
    specs = [(one.name, one.tasks_spec) for one in outcome.evaluations]
    assert specs[-1] == ("first", "drills:train")
    seconds = [one.seconds for one in outcome.evaluations]
    again = run(tmp_path, PLAN, "--evaluate.tasks", "drills:train")
    assert [one.seconds for one in again.evaluations] == seconds, "none is made again"


@pytest.mark.parametrize("algorithm", ["sft", pytest.param("grpo", marks=pytest.mark.long)])
def test_more_steps_of_a_finished_stage_are_those_that_it_would_have_done_at_once(
    tmp_path: Path, algorithm: str
) -> None:
    words = ("--algorithm.name", algorithm)
    short = ("--rollout.max_tokens", "8", "--rollout.tasks_per_step", "2", "--optimizer.lr", "0.01")
    for name, lengths in (("more", (1, 3)), ("once", (3,))):
        for steps in lengths:
            run(tmp_path, PLAN, *words, *short, "--name", name, "--steps", str(steps))
    saved = "first/checkpoints/step_000003"
    for file in ("model.safetensors", "assay/optimizer.safetensors", "assay/source.json"):
        more, once = (tmp_path / "runs" / name / saved / file for name in ("more", "once"))
        assert more.read_bytes() == once.read_bytes()


def test_more_steps_where_the_learning_rates_would_be_others_are_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    words = ("--optimizer.schedule", "cosine")
    run(tmp_path, PLAN, *words)
    with pytest.raises(
        SettingsError, match=r"\(steps, on which the learning rates of a cosine schedule depend\)"
    ):
        run(tmp_path, PLAN, *words, "--steps", "2")


def rates(folder: Path) -> dict[int, float]:
    """The learning rate of each step."""
    lines = (folder / "runs/run/first/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row["learn/lr"] for row in rows if "learn/lr" in row}


def test_a_stopped_stage_goes_on_with_another_rate_and_schedule_says_so_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--steps", "4", "--save.every", "1")
    saved = StageFolder.save

    def stop_after_two(folder: StageFolder, learner: Any, step: int, *more: Any) -> None:
        saved(folder, learner, step, *more)
        if step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StageFolder, "save", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, PLAN, *words, "--optimizer.lr", "0.01")
    capsys.readouterr()
    rest = ("--optimizer.lr", "0.02", "--optimizer.schedule", "linear")
    run(tmp_path, PLAN, *words, *rest)
    told = "from step 3 on: optimizer.lr 0.01 -> 0.02, optimizer.schedule constant -> linear"
    assert f"first: {told}\n" in capsys.readouterr().out
    (event,) = map(json.loads, (tmp_path / "runs/run/first/events.jsonl").read_text().splitlines())
    assert (event["step"], event["event"], event["text"]) == (2, "settings", told)
    assert rates(tmp_path) == pytest.approx({1: 0.01, 2: 0.01, 3: 0.01, 4: 0.005})
    run(tmp_path, PLAN, *words, *rest)
    assert "->" not in capsys.readouterr().out, "it is told once"


def test_a_finished_stage_refuses_another_rate_for_its_weights_were_learned_with_the_old_one(
    tmp_path: Path,
) -> None:
    run(tmp_path, PLAN, "--optimizer.lr", "0.01")
    before = (tmp_path / "runs/run/first/config.toml").read_text()
    with pytest.raises(SettingsError, match=r"made with other settings \(optimizer.lr\)"):
        run(tmp_path, PLAN, "--optimizer.lr", "0.02")
    assert (tmp_path / "runs/run/first/config.toml").read_text() == before


@pytest.mark.long
def test_a_run_as_model_is_its_newest_checkpoint_and_a_resume_keeps_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ("--folder", "runs")
    run(tmp_path, PLAN, *own, "--name", "first", "--steps", "2", "--save.every", "1")
    other = (*own, "--name", "second", "--policy.model", "runs/first", "--seed", "7")
    run(tmp_path, PLAN, *other)
    model = 'model = "../../first/first/checkpoints/step_000002"'
    assert model in (tmp_path / "runs/second/first/config.toml").read_text()
    run(tmp_path, PLAN, *own, "--name", "first", "--steps", "3", "--save.every", "1")
    outcome = run(tmp_path, PLAN, *other, "--steps", "2")
    assert outcome.finished, "the first run's newer checkpoint is not another model of the second"
    assert model in (tmp_path / "runs/second/first/config.toml").read_text()


def test_a_run_as_model_is_its_best_checkpoint_where_it_keeps_one(tmp_path: Path) -> None:
    kept = ("--steps", "2", "--save.every", "1", "--save.best", "evaluate/pass@1")
    first = run(tmp_path, PLAN, "--name", "first", *kept, "--evaluate.every", "1")
    assert first.best
    (first.best.parents[1] / "best.json").write_text('{"step": 1, "evaluate/pass@1": 0.9}')
    words = ["--policy.model", str(tmp_path / "runs/first"), "--folder", str(tmp_path / "runs")]
    (stage,) = stages.prepare_all(load_plan(tmp_path / "plan.toml", words))
    assert stage.settings.policy.model == str(first.best.with_name("step_000001"))


def test_a_checkpoint_is_renamed_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    run(tmp_path, PLAN)
    plan = load_plan(tmp_path / "plan.toml", ["--folder", str(tmp_path / "runs")])
    folder = StageFolder(plan.stages[0])
    checkpoint = folder.latest()
    assert checkpoint
    checkpoint.with_name("step_000002").mkdir()
    checkpoint.with_name("step_000003").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("assay.files._remove", killed)
        with pytest.raises(KeyboardInterrupt):
            folder._prune()
    assert not checkpoint.exists()
    assert len(list(folder.checkpoints.glob(".step_000001.*.partial"))) == 1


def test_two_sets_are_trained_on_in_one_run_in_their_shares(tmp_path: Path) -> None:
    rows = [{"id": f"t{n}", "prompt": "f", "completion": "x"} for n in range(4)]
    for name, some in (("a", rows[:3]), ("b", rows[3:]), ("c", rows[2:])):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / f"{name}.jsonl").write_text(text)
    text = PLAN.replace('tasks = { train = "drills:train", limit = 4 }', "")
    text = text.replace("[stages.first]", "[stages.first.tasks]")
    mixed = f'{text}train = ["a.jsonl", "b.jsonl"]\nweights = [1, 1]\n'
    run(tmp_path, mixed, "--epochs", "1", "--unset", "steps")
    lines = (tmp_path / "runs/run/first/metrics.jsonl").read_text().splitlines()
    assert len([line for line in lines if "loss" in line]) == 3, "3 rows of each set, 2 a step"
    for sets, says in (
        ('["a.jsonl", "c.jsonl"]', "both have a task 't2'"),
        ('["a.jsonl", "a.jsonl"]', "names a task set twice"),
    ):
        with pytest.raises(UserError, match=says):
            run(tmp_path, f"{text}train = {sets}\n")


def test_a_stage_judges_by_as_many_checks_as_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    plan = load_plan(tmp_path / "plan.toml", ["--tasks.checks", "2", "--policy.device", "cpu"])
    (stage,) = stages.prepare_all(plan)
    assert [len(task.checks) for task in stage.tasks] == [2, 2, 2, 2]
    assert len(stage.evaluation_tasks["drills:test"][0].checks) > 2
