"""Save, kill, resume: the run goes on with the same numbers to the bit."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from pyarrow import parquet

from assay.types import Check
from tests.end_to_end.nursery import finish, start
from tests.policies import TASKS

COMMON = """
name = "small"
rewards = { tests = {}, length = { alpha = 1.0, on_failure = true } }
[policy.tiny]
vocabulary = 320
width = 64
layers = 2
heads = 2
[tasks]
train = "tasks.jsonl"
[rollout]
tasks_per_step = 4
group_size = 4
max_tokens = 48
[judge]
slots = 2
[save]
every = 1
keep = 2
[stages.sft]
steps = 8
algorithm.name = "sft"
dataset.batch_size = 8
[stages.grpo]
steps = 13
algorithm = { name = "grpo", kl = 0.01, epochs = 2 }
save.best = "evaluate/pass@1"
[stages.grpo.evaluate]
tasks = "held_out.jsonl"
samples = 2
max_tokens = 16
every = 4
"""
SETTINGS = {
    "full": "",
    "lora": "[policy.lora]\nrank = 4\ndropout = 0.1\n",
    "rounded": '[policy]\ndtype = "bfloat16"\ngradient_checkpointing = true\n'
    "float32_lm_head = true\n",
}
LENGTHS = {"sft": 8, "grpo": 13}
STEPS = [(stage, step) for stage, length in LENGTHS.items() for step in range(1, length + 1)][:-1]
"""All but the last, after which there would be nothing left to kill."""
RUN = Path("runs/small")


def prepare(folder: Path, text: str) -> None:
    rows = [
        {"id": task.id, "prompt": task.prompt, "entry_point": "f", "reference": task.reference,
         "tests": [check.source for check in task.checks if isinstance(check, Check)]}
        for task in TASKS
    ]  # fmt: skip
    for name, part in (("tasks", rows[:10]), ("held_out", rows[10:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    (folder / "small.toml").write_text(text)


def train(folder: Path) -> None:
    code, said = finish(folder, "train", "small.toml")
    assert code == 0, said


def numbers(folder: Path, stage: str) -> list[dict[str, float]]:
    """The numbers of every step that do not depend on the clock.

    An evaluation that a kill kept from being noted down is made again, and says the same: it counts
    once.
    """
    lines = (folder / RUN / stage / "metrics.jsonl").read_text().splitlines()
    timed = ("time", "engine/")
    rows = [
        {key: value for key, value in json.loads(line).items() if not key.startswith(timed)}
        for line in lines
    ]
    return [row for row, before in zip(rows, [None, *rows], strict=False) if row != before]


def state(folder: Path, stage: str) -> dict[str, bytes]:
    """Of every checkpoint: weights, and what the optimizer needs."""
    kept = folder / RUN / stage / "checkpoints"
    return {str(file.relative_to(kept)): file.read_bytes() for file in kept.rglob("*.safetensors")}


def kill_when(
    folder: Path, ready: Callable[[], bool], sign: signal.Signals, delay: float = 0.0
) -> int | None:
    """Start training in `folder`, send `sign` some seconds after `ready`; the exit code."""
    running = start(folder, "train", "small.toml")
    deadline = time.monotonic() + 120
    while not ready() and running.is_alive() and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(delay)
    assert running.pid
    assert running.is_alive(), (folder / "said").read_text()
    os.kill(running.pid, sign)
    running.join(timeout=120)
    return running.exitcode


def is_tracked(folder: Path, stage: str, step: int) -> bool:
    file = folder / RUN / stage / "metrics.jsonl"
    return file.exists() and f'{{"step": {step}, ' in file.read_text()


def is_saved(folder: Path, stage: str, step: int) -> bool:
    """Whether the checkpoint is there, or being written."""
    kept = folder / RUN / stage / "checkpoints"
    name = f"step_{step:06d}"
    return (
        any(name in path.name or path.name > name for path in kept.glob("*step_*"))
        if kept.exists()
        else False
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder, COMMON)
    train(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(("kind", "kills"), [("full", 20), ("lora", 6), ("rounded", 6)])
def test_a_run_killed_at_random_moments_ends_with_the_same_numbers_and_weights_to_the_bit(
    tmp_path: Path, undisturbed: Path, kind: str, kills: int
) -> None:
    if kind != "full":
        undisturbed = tmp_path / "undisturbed"
        undisturbed.mkdir()
        prepare(undisturbed, COMMON + SETTINGS[kind])
        train(undisturbed)
    prepare(tmp_path, COMMON + SETTINGS[kind])
    draw = random.Random(f"kills of {kind}")
    torn = 0
    for number, (stage, step) in enumerate(sorted(draw.sample(STEPS, kills), key=STEPS.index)):
        while_saving = number % 2 == 0
        seen = partial(is_saved if while_saving else is_tracked, tmp_path, stage, step)
        delay = draw.uniform(0, 0.02 if while_saving else 0.3) if number else 0.0
        assert kill_when(tmp_path, seen, signal.SIGKILL, delay) == -signal.SIGKILL, (
            tmp_path / "said"
        ).read_text()
        torn += len(list((tmp_path / RUN).glob("*/checkpoints/.*.partial")))
    assert torn or kills < 5, "some were killed in the middle of saving"
    train(tmp_path)
    for stage in ("sft", "grpo"):
        assert numbers(tmp_path, stage) == numbers(undisturbed, stage)
        assert state(tmp_path, stage) == state(undisturbed, stage)
    for name in ("best.json", "evaluated.json"):
        assert (tmp_path / RUN / "grpo" / name).read_text() == (
            undisturbed / RUN / "grpo" / name
        ).read_text()


CHOSEN = """
[tasks.screen]
samples = 2
first = 1
at_least = 0
at_most = 2
[tasks.choice]
name = "retire"
visits = 1
returns = 0.3
"""
"""This model solves nothing: the screen keeps all, and a task rests once it was visited."""


@pytest.mark.long
def test_a_run_that_chooses_tasks_by_their_rates_is_killed_and_goes_on_to_the_bit(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        prepare(folder, COMMON + CHOSEN)
    train(whole)
    screen = Path("grpo/screen")
    samples = killed / RUN / screen / "samples.jsonl"
    draw = random.Random("kills of choices")
    moments: list[Callable[[], bool]] = [
        lambda: samples.exists() and samples.read_text().count("\n") > 2,
        *(partial(is_tracked, killed, "grpo", step) for step in (2, 5, 9)),
        partial(is_saved, killed, "grpo", 11),
    ]
    for ready in moments:
        assert kill_when(killed, ready, signal.SIGKILL, draw.uniform(0, 0.2)) == -signal.SIGKILL
    train(killed)
    assert numbers(killed, "grpo") == numbers(whole, "grpo")
    assert state(killed, "grpo") == state(whole, "grpo")
    results = [json.loads((folder / RUN / screen / "screen.json").read_text())
               for folder in (whole, killed)]  # fmt: skip
    assert results[0]["results"] == results[1]["results"]
    positions = [
        json.loads((folder / RUN / "grpo/checkpoints/step_000013/assay/source.json").read_text())
        for folder in (whole, killed)
    ]
    assert positions[0] == positions[1]
    assert positions[0]["order"]["place"] > 13 * 4, "some were passed over"
    assert len(positions[0]["rates"]["tasks"]) == 10


REPLAYED = """
name = "small"
policy.tiny = { vocabulary = 320, width = 64, layers = 2, heads = 2, context = 256 }
rollout = { tasks_per_step = 8, group_size = 8, max_tokens = 24 }
judge.slots = 2
save.every = 1
[tasks]
train = "tasks.jsonl"
replay = { share = 0.1, keep = 2, below = 1.0, oldest = 3 }
[stages.grpo]
steps = 10
algorithm = { name = "dppo", minibatches = 2 }
"""
"""Comments pass here, so that a random policy passes sometimes; each task that fails is hard."""


@pytest.mark.long
def test_a_run_that_replays_passes_is_killed_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    rows = [
        {"id": str(n), "prompt": f"# {n}\ndef f(xs):\n    return xs  # ", "entry_point": "f",
         "tests": ["assert f(1) == 1"]}
        for n in range(12)
    ]  # fmt: skip
    for folder in (whole, killed):
        folder.mkdir()
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "small.toml").write_text(REPLAYED)
    train(whole)
    draw = random.Random("kills of replays")
    moments: list[Callable[[], bool]] = [
        partial(is_tracked, killed, "grpo", 2),
        partial(is_saved, killed, "grpo", 4),
        partial(is_tracked, killed, "grpo", 6),
    ]
    for ready in moments:
        assert kill_when(killed, ready, signal.SIGKILL, draw.uniform(0, 0.2)) == -signal.SIGKILL
    train(killed)
    learned = numbers(whole, "grpo")
    assert learned == numbers(killed, "grpo")
    assert state(killed, "grpo") == state(whole, "grpo")
    saved = "grpo/checkpoints/step_000010/assay/source.json"
    positions = [json.loads((folder / RUN / saved).read_text()) for folder in (whole, killed)]
    assert positions[0] == positions[1]
    assert positions[0]["replay"], "some passes are stored"
    assert sum(row["replay/rollouts"] for row in learned) > 5
    for row in learned:
        assert row["learn/tokens"] == row["tokens/learned"] + row["tokens/replayed"]
        assert row["tokens/replayed"] <= 0.1 * row["learn/tokens"]
        assert row.get("replay/age", 1.0) <= 3
        assert 0 < row.get("replay/weight", 1.0) <= 2


@pytest.mark.long
def test_a_run_asked_to_stop_finishes_its_step_saves_and_exits_well(
    tmp_path: Path, undisturbed: Path
) -> None:
    prepare(tmp_path, COMMON.replace("[save]\nevery = 1", "[save]\nevery = 0"))
    first = tmp_path / RUN / "grpo/rollouts/step_000001.parquet"
    assert kill_when(tmp_path, first.exists, signal.SIGTERM) == 0
    (saved,) = (tmp_path / RUN / "grpo/checkpoints").iterdir()
    assert saved.name in ("step_000001", "step_000002", "step_000003")
    assert "stopped; continue with: assay train small.toml" in (tmp_path / "said").read_text()
    train(tmp_path)
    kept = sorted(path.name for path in (tmp_path / RUN / "grpo/checkpoints").iterdir())
    assert kept == [
        "step_000004",
        "step_000012",
        "step_000013",
    ], "with save.best, evaluations have checkpoints"
    assert numbers(tmp_path, "grpo") == numbers(undisturbed, "grpo")
    last = {
        name: data
        for name, data in state(undisturbed, "grpo").items()
        if name.startswith("step_000013")
    }
    assert {
        name: data
        for name, data in state(tmp_path, "grpo").items()
        if name.startswith("step_000013")
    } == last


@pytest.mark.long
def test_a_finished_run_is_not_run_again_and_says_what_is_best(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")}
    train(undisturbed)
    assert (
        "best     runs/small/grpo/checkpoints/step_000004\n" in (undisturbed / "said").read_text()
    )
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")} == before


@pytest.mark.long
def test_the_run_folder_holds_settings_numbers_rollouts_and_models_that_transformers_loads(
    undisturbed: Path,
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    stage = undisturbed / RUN / "grpo"
    assert 'name = "grpo"' in (stage / "config.toml").read_text()
    learned = [row for row in numbers(undisturbed, "grpo") if "loss" in row]
    assert [row["step"] for row in learned] == list(range(1, 14))
    assert all(row["learn/grad_norm"] > 0 for row in learned), "the weights change at every step"
    assert [row["step"] for row in numbers(undisturbed, "grpo") if "evaluate/pass@1" in row] == [
        4,
        8,
        12,
        13,
    ]
    rows = parquet.read_table(stage / "rollouts/step_000003.parquet").to_pylist()
    assert len(rows) == 16
    assert {row["verdict"] for row in rows} <= {
        "pass",
        "wrong",
        "error",
        "compile",
        "no_code",
        "timeout",
        "memory",
    }
    for group in {row["group"] for row in rows}:
        own = [row for row in rows if row["group"] == group]
        rewards = [row["reward"] for row in own]
        apart = pstdev(rewards)
        assert [row["advantages"] for row in own] == [
            [pytest.approx((one - fmean(rewards)) / apart if apart else 0.0, abs=1e-3)]
            for one in rewards
        ], "as GRPO has it: divided by the deviation of the group"
    measured = parquet.read_table(stage / "evaluations/step_000004.parquet").to_pylist()
    assert [(row["group"], row["index"]) for row in measured] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    kept = sorted((stage / "checkpoints").iterdir())
    assert [path.name for path in kept] == [
        "step_000004",
        "step_000012",
        "step_000013",
    ], "the best and the newest"
    model = AutoModelForCausalLM.from_pretrained(kept[-1])
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert AutoTokenizer.from_pretrained(kept[-1]).eos_token_id == model.config.eos_token_id


@pytest.mark.long
def test_the_default_rate_stands_in_the_resolved_settings_and_in_what_is_said(
    undisturbed: Path,
) -> None:
    train(undisturbed)
    for stage, rate in (("sft", 3e-3), ("grpo", 3e-4)):
        resolved = tomllib.loads((undisturbed / RUN / stage / "config.toml").read_text())
        assert resolved["optimizer"]["lr"] == pytest.approx(rate)
        assert f"{stage}: finished" in (undisturbed / "said").read_text()
        assert f"learning rate {rate:g}" in (undisturbed / "said").read_text()


@pytest.mark.long
def test_an_evaluation_that_was_due_and_is_missing_is_made_up_for(undisturbed: Path) -> None:
    run = undisturbed / RUN
    (made,) = json.loads((run / "report.json").read_text())["evaluations"]
    (run / "report.json").unlink()
    (run / "grpo/evaluated.json").unlink()
    train(undisturbed)
    (again,) = json.loads((run / "report.json").read_text())["evaluations"]
    assert again | {"seconds": 0} == made | {"seconds": 0}


def test_a_stage_without_rollouts_stops_as_well_when_asked_and_the_next_is_not_begun(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, COMMON.replace("[stages.sft]\nsteps = 8", "[stages.sft]\nsteps = 4000"))
    assert kill_when(tmp_path, partial(is_saved, tmp_path, "sft", 2), signal.SIGINT) == 0
    assert sorted((tmp_path / RUN / "sft/checkpoints").iterdir())[-1].name < "step_000100"
    assert not (tmp_path / RUN / "grpo").exists()


def test_a_loss_that_is_no_number_ends_with_exit_code_3_the_batch_and_the_last_good_checkpoint(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, COMMON + "[stages.sft.optimizer]\nlr = 1e20\n")
    code, said = finish(tmp_path, "train", "small.toml")
    line = said.splitlines()[-1]
    assert code == 3, said
    assert re.fullmatch(
        r"assay: step (\d): the (loss|gradient's norm) is (nan|inf); lower optimizer\.lr; the last"
        r" good checkpoint is runs/small/sft/checkpoints/step_00000\d; its batches are in"
        r" runs/small/sft/not_finite",
        line,
    )
    there = tmp_path / RUN / "sft/not_finite"
    assert sorted(path.name for path in there.iterdir()) == ["batches.json", "batches.safetensors"]
    assert (tmp_path / re.findall(r"runs\S+step_\d+", line)[0] / "model.safetensors").exists()
