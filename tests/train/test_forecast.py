"""What `assay plan` tells of a run before it trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.config.load_settings import load_plan
from assay.config.sections import TinySettings
from assay.errors import SettingsError
from assay.policy.tiny import make_tiny
from assay.progress import Progress
from assay.tasks import load
from assay.train.estimate import Forecast, evaluations_of, in_time
from assay.train.forecast import forecast
from assay.train.memory import DeviceMemory, in_words
from assay.train.timing import Timing

PLAN = """
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "drills:train", limit = 4 }
judge.allow_weak_isolation = true
save.keep = 1
[stages.sft]
steps = 3
algorithm.name = "sft"
dataset.batch_size = 2
evaluate = { tasks = "drills:test", limit = 2, samples = 2, max_tokens = 4 }
[stages.grpo]
steps = 5
algorithm.name = "grpo"
rollout = { tasks_per_step = 2, group_size = 2, max_tokens = 8 }
"""


def plan(folder: Path, *words: str) -> list[Forecast]:
    (folder / "plan.toml").write_text(PLAN)
    settings = ["--folder", str(folder / "runs"), *words]
    return forecast(load_plan(folder / "plan.toml", settings), Progress())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Forecast]]:
    folder = tmp_path_factory.mktemp("planned")
    return folder, plan(folder)


def test_memory_is_told_by_part(made: tuple[Path, list[Forecast]]) -> None:
    _, (sft, grpo) = made
    parts = dict(grpo.parts)
    assert parts["gradients"] > 90_000, "float32, all weights are trained"
    assert 0 <= parts["weights"] - parts["gradients"] < 1000, "it has a few fixed buffers"
    assert parts["optimizer"] == 2 * parts["gradients"], "AdamW has two moments"
    assert parts["reference"] == parts["critic"] == parts["master weights"] == 0
    assert sft.room > sft.peak >= sft.parts["this process"] > 2**26


def test_seconds_shares_and_disk_are_measured_on_one_step(
    made: tuple[Path, list[Forecast]],
) -> None:
    _, (sft, grpo) = made
    assert {"learn", "step", "evaluate"} == set(sft.seconds)
    assert {"generate", "judge", "learn", "step"} == set(grpo.seconds)
    assert (sft.steps, grpo.steps) == (3, 5)
    assert sft.sample == {}
    assert grpo.sample["rollout/truncated"] > 0, "8 tokens of a random model"
    checkpoint = grpo.parts["weights"] + grpo.parts["optimizer"]
    assert sft.disk == 2 * checkpoint
    assert grpo.disk > 2 * checkpoint, "rollouts are written too"


def test_nothing_is_left_behind(made: tuple[Path, list[Forecast]]) -> None:
    folder, _ = made
    assert [file.name for file in folder.iterdir()] == ["plan.toml"]


def test_a_micro_batch_that_does_not_fit_is_refused_with_the_number_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceMemory, "free", 10 * 2**20)
    monkeypatch.setattr(DeviceMemory, "peak", property(lambda one: one.used + 100 * 2**20))
    words = "tasks_per_step=16", "group_size=16", "max_tokens=100"
    with pytest.raises(
        SettingsError, match=r"lower learner\.micro_batch_tokens from 16384 to \d+,"
    ):
        plan(tmp_path, *(f"--stages.grpo.rollout.{word}" for word in words))


def test_a_model_that_does_not_fit_is_refused_with_what_makes_it_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceMemory, "free", -(2**30))
    with pytest.raises(SettingsError, match=r"train an adapter with policy\.lora"):
        plan(tmp_path)
    with pytest.raises(SettingsError, match=r"set policy\.quantize = 'nf4'"):
        plan(tmp_path, "--policy.lora.rank", "2")


def test_a_disk_that_is_too_small_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(SettingsError, match=r"lower save\.keep, or choose another folder"):
        plan(tmp_path)


def test_the_command_prints_settings_memory_and_time(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    words = [str(tmp_path / "plan.toml"), "--stages.grpo.steps", "7"]
    done = CliRunner().invoke(app, ["plan", *words])
    assert done.exit_code == 0, done.output
    assert "# stage grpo" in done.stdout
    assert "steps = 7" in done.stdout
    assert "at most at once" in done.stdout
    assert "estimated for grpo: 7 steps; seconds of the first: generate 0." in done.stderr
    assert "; the whole stage " in done.stdout.partition("grpo: 7 steps;")[2]
    assert "grpo: 7 steps; seconds of the first: generate" in done.stdout
    assert "\nthe whole run: " in done.stdout


def parts_of(folder: Path, *words: str) -> dict[str, int]:
    """Bytes by part of the stage `grpo` with other settings, as estimated."""
    (folder / "plan.toml").write_text(PLAN)
    planned = load_plan(folder / "plan.toml", ["--folder", str(folder / "runs"), *words])
    return dict(forecast(planned, Progress(), quick=True)[-1].parts)


def test_a_teacher_and_a_reference_are_in_the_estimate(tmp_path: Path) -> None:
    shape = TinySettings(vocabulary=300, width=64, layers=2, heads=2, context=192)
    teacher = make_tiny(tmp_path / "teacher", load("drills:train", limit=4), shape, seed=0)
    name = "--stages.grpo.algorithm.name"
    opd = parts_of(tmp_path, name, "opd", "--stages.grpo.algorithm.teacher", str(teacher))
    # 300 embeddings; in each layer 4 matrices of attention, 3 of three times the width, two norms
    size = 4 * (300 * 64 + 2 * (4 * 64**2 + 3 * 3 * 64**2 + 2 * 64) + 64)
    assert 0 <= opd["teacher"] - size < 1000, "it has a few fixed buffers"
    assert opd["reference"] == 0
    kto = parts_of(tmp_path, name, "kto")
    assert kto["reference"] == 2 * kto["gradients"], "the start's weights and the present ones"
    assert kto["gradients"] == 4 * (300 * 32 + 4 * 32**2 + 9 * 32**2 + 2 * 32 + 32)
    assert kto["teacher"] == 0
    assert parts_of(tmp_path, name, "kto", "--policy.lora.rank", "2")["reference"] == 0


def test_a_plan_refuses_a_teacher_with_another_tokenizer(tmp_path: Path) -> None:
    shape = TinySettings(vocabulary=280, width=32, layers=1, heads=2, context=192)
    teacher = make_tiny(tmp_path / "teacher", load("drills:train", limit=4), shape, seed=0)
    words = "--stages.grpo.algorithm.name", "opd", "--stages.grpo.algorithm.teacher", str(teacher)
    with pytest.raises(SettingsError, match="another tokenizer"):
        parts_of(tmp_path, *words)


def test_a_quick_plan_is_the_estimates_alone(
    made: tuple[Path, list[Forecast]], tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    planned = load_plan(tmp_path / "plan.toml", ["--folder", str(tmp_path / "runs")])
    quick = forecast(planned, Progress(), quick=True)
    for estimated, full in zip(quick, made[1], strict=True):
        assert (estimated.measured, estimated.sample) == ((), {})
        assert full.measured
        assert (estimated.steps, estimated.disk_free > 0) == (full.steps, True)
        assert estimated.parts["optimizer"] == full.parts["optimizer"]
    assert quick[0].disk == made[1][0].disk
    assert [file.name for file in tmp_path.iterdir()] == ["plan.toml"]
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "plan.toml"), "--quick"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("measured: nothing; the rest is estimated") == 2


def test_a_run_that_is_shorter_than_a_measurement_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.timing.LEAST", 0.0)
    monkeypatch.setattr("assay.train.timing.SHARE", 1e-9)
    assert [stage.measured for stage in plan(tmp_path)] == [(), ()]


def timing(steps: int = 100) -> Timing:
    """Of 500 seconds of steps and 40 of an evaluation, so measuring may take 27."""
    seconds = {"learn": 2.0, "generate": 3.0, "step": 5.0, "evaluate": 40.0}
    return Timing(Forecast("grpo", steps, 1, {}, 0, 0, seconds, {}, 0, 0, 1000, {}))


def test_a_part_is_measured_until_a_measurement_agrees() -> None:
    known = timing()
    known.add({"learn": 2.0}, share=0.5)
    assert (known.seconds["learn"], known.seconds["step"]) == (4.0, 7.0)
    assert known.wants("learn"), "it took twice the estimate"
    known.add({"learn": 4.3})
    assert not known.wants("learn"), "it took what was expected by then"
    assert known.wants("step"), "nothing was generated yet"
    known.add({"learn": 4.3, "generate": 3.1, "judge": 0.5, "step": 8.0})
    assert not known.wants("step")
    assert not known.wants("evaluate", share=0.01), "the same model generates"
    assert known.measured == ["learn", "learn", "learn", "generate", "judge", "step"]


def test_an_evaluation_is_corrected_by_what_a_step_generated() -> None:
    known = timing()
    known.add({"generate": 6.0, "step": 8.0})
    assert known.seconds["evaluate"] == 80.0
    assert known.wants("evaluate", share=0.1)


def test_measuring_takes_a_small_share_of_the_run() -> None:
    assert timing().wants("evaluate", share=0.6)
    assert not timing().wants("evaluate", share=0.7)
    assert not timing(steps=1).wants("step", share=1.1), "5 seconds are for the shortest run"
    slow = timing()
    slow.add({"learn": 20.0})
    assert not slow.wants("step"), "what is slower than estimated costs its time"
    assert not slow.wants("generate"), "a machine is as slow at the next part"


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "kto"])
def test_advice_names_only_settings_that_the_stage_uses(algorithm: str, tmp_path: Path) -> None:
    row = '{"prompt": "Add.", "chosen": "x = 1", "rejected": "y", "completion": "x"}\n'
    (tmp_path / "pairs.jsonl").write_text(row)
    labels = [{"prompt": text, "completion": "x = 1", "label": text == "Go."}
              for text in ("Add.", "Go.")]  # fmt: skip
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    (tmp_path / "own.toml").write_text(PLAN.partition("[stages.sft]")[0])
    words = f"--algorithm.name {algorithm} --steps 3 --evaluate.tasks drills:test --folder x"
    words += f" --evaluate.limit 2 --tasks.limit {4 if algorithm == 'sft' else 1}"
    words += f" --algorithm.pairs {tmp_path}/pairs.jsonl" if algorithm == "dpo" else ""
    words += f" --tasks.train {tmp_path}/pairs.jsonl" if algorithm == "dpo" else ""
    words += f" --algorithm.labels {tmp_path}/labels.jsonl" if algorithm == "kto" else ""
    (stage,) = forecast(load_plan(tmp_path / "own.toml", words.split()), Progress(), quick=True)
    assert set(stage.changes) == {"learn", "evaluate"}
    assert "dataset.batch_size" in stage.changes["learn"]
    assert "policy.lora" in stage.changes["learn"]
    assert not [change for change in stage.changes.values() if "rollout." in change]
    adapter = load_plan(tmp_path / "own.toml", [*words.split(), "--policy.lora.rank", "2"])
    assert "lora" not in forecast(adapter, Progress(), quick=True)[0].changes["learn"]


def test_advice_for_rollouts_names_their_settings(made: tuple[Path, list[Forecast]]) -> None:
    sft, grpo = made[1]
    assert "rollout.group_size" in grpo.changes["generate"]
    assert "dataset." not in "".join(grpo.changes.values())
    assert "evaluate" not in grpo.changes, "it has no evaluation"
    assert "rollout." not in sft.line + "".join(sft.changes.values())


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_measurement_at_once_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "scratch").mkdir()
    words = [
        "--policy.tiny.width",
        "256",
        "--policy.tiny.layers",
        "6",
        "--stages.grpo.rollout.group_size",
        "64",
        "--stages.grpo.rollout.max_tokens",
        "150",
    ]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "assay", "plan", "plan.toml", *words], cwd=tmp_path,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path / "scratch")},
    )  # fmt: skip
    assert process.stderr
    for line in process.stderr:
        if line.startswith("estimated for grpo: "):
            break
    time.sleep(1)
    process.send_signal(number)
    start = time.monotonic()
    assert process.wait(timeout=60) == 128 + number
    assert time.monotonic() - start < 5, "not after a step of this model"
    assert not [*(tmp_path / "scratch").glob("assay-plan-*")]


def test_times_are_told_in_words() -> None:
    assert [in_time(one) for one in (40, 300, 9000, 200_000)] == [
        "40 s", "5 min", "2.5 h", "2.3 days",
    ]  # fmt: skip


def test_a_run_is_its_steps_and_its_evaluations(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    words = ["--stages.sft.evaluate.every", "2", "--stages.sft.evaluate.before", "true"]
    sft, grpo = load_plan(tmp_path / "plan.toml", words).stages
    assert (evaluations_of(sft, 5), evaluations_of(grpo, 5)) == (4, 0), "before, after 2, 4 and 5"
    seconds = {"learn": 2.0, "generate": 3.0, "step": 5.0, "evaluate": 10.0}
    made = Forecast("sft", 5, 4, {}, 0, 0, seconds, {}, 0, 0, 0, {"evaluate": "lower limits"})
    assert made.total == 5 * 5.0 + 4 * 10
    assert (
        "the whole stage 65 s, most of it to evaluate: to shorten that, lower limits" in made.line
    )


def test_sizes_are_told_in_words() -> None:
    assert in_words(41 * 2**20) == "41 MiB"
    assert in_words(3 * 2**30 + 2**29) == "3.5 GiB"
