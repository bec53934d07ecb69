"""Two ranks learn what one learns, resume what one has saved, and name the one that fails."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.distributed.launch import ROOT, ranks_of, run, started, two_machines

pytestmark = pytest.mark.long
LEARN = "tests.distributed.learn"
CASES = [
    f"{name}{adapter}"
    for name in ("sft", "grpo", "reinforce", "ppo", "dpo", "opd")
    for adapter in ("", "-lora")
]
TOML = """
name = "ranks"
tasks.train = "drills:train"
policy.tiny = { width = 64, layers = 2, heads = 2 }
[stages.sft]
algorithm.name = "sft"
steps = STEPS
save = { every = 2 }
[stages.grpo]
algorithm.name = "grpo"
steps = 2
rewards = { tests = {}, format = {} }
rollout = { tasks_per_step = 4, group_size = 4, max_tokens = 24 }
evaluate = { tasks = "drills:test", every = 2, max_tokens = 24, limit = 8 }
"""

BETWEEN = """
import os, signal
from assay.distributed.job import RankJob
job = RankJob(0.05)
if job.number:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    job.send("step")
except RuntimeError as error:
    print("noticed", job.blame(error, "step 1"), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each case after two steps on one and on two ranks, and after two more on the other number;
    two of them on four.
    """
    folder = tmp_path_factory.mktemp("ranks")
    run(1, LEARN, f"{folder}/1", *CASES, "ppo-bf16")
    run(2, LEARN, f"{folder}/2", *CASES, "ppo-bf16")
    run(4, LEARN, f"{folder}/4", "ppo", "dpo")
    with two_machines(LEARN, f"{folder}/2x2", "ppo", "grpo-lora") as machines:
        for machine in machines:
            printed, _ = machine.communicate()
            assert machine.returncode == 0, printed[-4000:]
    few = "ppo", "grpo-lora"
    run(1, LEARN, f"{folder}/1 then 1", f"{folder}/1", *few)
    run(1, LEARN, f"{folder}/2 then 1", f"{folder}/2", *few)
    run(2, LEARN, f"{folder}/1 then 2", f"{folder}/1", *few)
    return folder


def assert_equal(found: Path, expected: Path) -> None:
    files = sorted(file.relative_to(expected) for file in expected.rglob("*.safetensors"))
    assert files == sorted(file.relative_to(found) for file in found.rglob("*.safetensors"))
    assert len(files) == 3
    for file in files:
        one, other = load_file(expected / file), load_file(found / file)
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].shape == other[name].shape
            gap = float((one[name] - other[name]).abs().max())
            assert gap < 1e-7, f"{file} {name}: {gap}"
    steps = [json.loads((folder / "metrics.json").read_text()) for folder in (expected, found)]
    for mine, theirs in zip(*steps, strict=True):
        mine.pop("time/learn"), theirs.pop("time/learn")
        assert theirs == pytest.approx(mine, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_what_one_learns(outcomes: Path, case: str) -> None:
    assert_equal(outcomes / "2" / case, outcomes / "1" / case)


def test_ranks_compare_engine_and_learner_in_a_step_without_a_gradient(tmp_path: Path) -> None:
    run(2, LEARN, f"{tmp_path}", "flat")
    first, second = json.loads((tmp_path / "flat" / "metrics.json").read_text())
    assert first["learn/grad_norm"] == second["learn/grad_norm"] == 0
    apart = math.log(300) - 1  # the engine said -1 of each token
    assert first["learn/kl_engine"] == pytest.approx(math.exp(apart) - 1 - apart, rel=0.1)
    assert first["learn/entropy"] == pytest.approx(math.log(300), rel=0.01)
    start = load_file(next(tmp_path.glob("rank */tiny/model.safetensors")))
    after = load_file(tmp_path / "flat" / "model.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in start.items())


def test_ranks_learn_in_bfloat16_too_beside_a_critic_in_float32(outcomes: Path) -> None:
    one, two = (
        json.loads((outcomes / ranks / "ppo-bf16" / "metrics.json").read_text()) for ranks in "12"
    )
    for mine, theirs in zip(one, two, strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-2)


def test_four_ranks_learn_what_one_learns_from_the_parts_of_three_groups(outcomes: Path) -> None:
    assert_equal(outcomes / "4" / "ppo", outcomes / "1" / "ppo")


def test_four_ranks_learn_what_one_learns_though_whole_groups_leave_none_for_some(
    outcomes: Path,
) -> None:
    assert_equal(outcomes / "4" / "dpo", outcomes / "1" / "dpo")


@pytest.mark.parametrize("case", ["ppo", "grpo-lora"])
def test_two_machines_of_two_ranks_with_a_copy_on_each_learn_what_one_learns(
    outcomes: Path, case: str
) -> None:
    assert_equal(outcomes / "2x2" / case, outcomes / "1" / case)


@pytest.mark.parametrize("case", ["ppo", "grpo-lora"])
@pytest.mark.parametrize("order", ["2 then 1", "1 then 2"])
def test_what_some_ranks_saved_others_continue(outcomes: Path, case: str, order: str) -> None:
    assert_equal(outcomes / order / case, outcomes / "1 then 1" / case)


def test_ranks_that_stopped_and_went_on_have_the_bits_of_ranks_that_did_not(tmp_path: Path) -> None:
    cases = "ppo", "grpo-lora", "ppo-bf16"
    run(2, LEARN, f"{tmp_path}/at once", *(f"{case}-all" for case in cases))
    run(2, LEARN, f"{tmp_path}/first", *cases)
    run(2, LEARN, f"{tmp_path}/then", f"{tmp_path}/first", *cases)
    for case in cases:
        files = [*(tmp_path / "then" / case).rglob("*.safetensors")]
        assert len(files) == 3
        for file in files:
            straight = tmp_path / "at once" / f"{case}-all"
            expected = load_file(straight / file.relative_to(tmp_path / "then" / case))
            tensors = load_file(file)
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(tensors[name], expected[name]) for name in tensors), file


def numbers(folder: Path, stage: str) -> list[dict[str, float]]:
    kept = ("step", "loss", "learn/grad_norm", "reward/mean", "rollout/length")
    lines = (folder / "ranks" / stage / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    return [{name: one[name] for name in kept if name in one} for one in steps]


def test_a_run_of_two_stages_on_two_ranks_is_that_of_one_and_goes_on_with_another_number(
    tmp_path: Path,
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(TOML.replace("STEPS", "4"))
    for ranks in (1, 2):
        run(ranks, "assay", "train", str(config), "--folder", str(tmp_path / f"{ranks}"))
    for stage in ("sft", "grpo"):
        found, expected = (numbers(tmp_path / ranks, stage) for ranks in ("2", "1"))
        assert len(found) == len(expected) >= 2
        for one, other in zip(found, expected, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    more = ["--stages.grpo.steps", "4", "--stages.grpo.optimizer.schedule", "constant"]
    config.write_text(TOML.replace("STEPS", "4"))
    for first, then in ((1, 2), (2, 1)):
        folder = tmp_path / f"{first} then {then}"
        for ranks, words in ((first, more[2:]), (then, more)):
            run(ranks, "assay", "train", str(config), "--folder", str(folder), *words)
    found, expected = (numbers(tmp_path / f, "grpo") for f in ("1 then 2", "2 then 1"))
    assert [one["step"] for one in found if "loss" in one][-1] == 4
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["model.safetensors", "assay/optimizer.safetensors"])
def test_all_ranks_go_on_from_the_checkpoint_before_one_that_holds_nan(
    name: str, tmp_path: Path
) -> None:
    config, saved = tmp_path / "run.toml", tmp_path / "ranks" / "sft" / "checkpoints"
    config.write_text(TOML.replace("STEPS", "4").partition("[stages.grpo]")[0])
    words = "assay", "train", str(config), "--folder", str(tmp_path)
    run(2, *words)
    newest = saved / "step_000004"
    expected = load_file(newest / name)
    broken = {key: tensor.clone() for key, tensor in expected.items()}
    next(one for one in broken.values() if one.ndim == 2)[-1, -1] = float("nan")  # rank 1's shard
    save_file(broken, newest / name, metadata={"format": "pt"})
    run(2, *words)
    for key, tensor in load_file(newest / name).items():
        assert (tensor - expected[key]).abs().max() < 1e-6
    assert sorted(one.name for one in saved.iterdir()) == [
        "step_000002", "step_000004", "step_000004.broken"
    ]  # fmt: skip


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs_ends_the_job_with_one_error_that_names_it(
    how: signal.Signals, tmp_path: Path
) -> None:
    config, metrics = tmp_path / "run.toml", tmp_path / "ranks" / "sft" / "metrics.jsonl"
    config.write_text(TOML.replace("STEPS", "100000"))
    words = "assay", "train", str(config), "--folder", str(tmp_path)
    with started(2, *words, "--learner.rank_minutes", "0.3") as process:
        while not (metrics.is_file() and metrics.read_text().count("\n") > 3):
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(ranks_of(process)[1], how)
        printed, _ = process.communicate()
    said = [line for line in printed.splitlines() if line.startswith("assay: ")]
    assert len(said) == 1
    assert re.search(r"in (save after )?step \d+: ", said[0])
    assert "rank 1 is gone or hangs" in said[0]
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("method", "rank", "calls", "said"),
    [
        ("step", 1, 3, "in step 4: rank 1 has failed: .*no space left on the device"),
        ("save", 0, 0, "step 2 cannot be saved in .*no space left on the device"),
        ("load_policy", 1, 0, "rank 1 has failed: .*no space left on the device"),
        ("load_policy", 0, 0, "no space left on the device"),
        ("allocate", 1, 1, "in the start: rank 1 has failed: .*no space left on the device"),
        ("allocate", 0, 1, "no space left on the device"),
    ],
)
def test_what_fails_on_one_rank_alone_ends_the_job_at_once_and_is_said(
    method: str, rank: int, calls: int, said: str, tmp_path: Path
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(TOML.replace("STEPS", "6"))
    words = [method, str(rank), str(calls), "train", str(config), "--folder", str(tmp_path)]
    with started(2, "tests.distributed.broken", *words) as process:
        printed, _ = process.communicate(timeout=90)
    lines = [line for line in printed.splitlines() if line.startswith("assay: ")]
    assert len(lines) == 1, printed[-3000:]
    assert re.search(said, lines[0]), lines
    assert process.returncode != 0


def test_a_rank_that_hangs_between_two_calls_is_noticed_too(tmp_path: Path) -> None:
    (tmp_path / "between.py").write_text(BETWEEN)
    with started(2, "between", PYTHONPATH=f"{ROOT}:{tmp_path}") as process:
        assert process.stdout
        assert next(line for line in process.stdout if "noticed" in line or not line)
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(("rank", "how"), [(0, signal.SIGINT), (None, signal.SIGKILL)])
def test_a_stop_signal_or_the_end_of_torchrun_ends_all_ranks_after_the_step(
    rank: int | None, how: signal.Signals, tmp_path: Path
) -> None:
    config, metrics = tmp_path / "run.toml", tmp_path / "ranks" / "sft" / "metrics.jsonl"
    config.write_text(TOML.replace("STEPS", "100000"))
    words = "assay", "train", str(config), "--folder", str(tmp_path)
    with started(2, *words) as process:
        while not (metrics.is_file() and metrics.read_text().count("\n") > 3):
            assert process.poll() is None
            time.sleep(0.1)
        ranks = ranks_of(process)
        os.kill(process.pid if rank is None else ranks[rank], how)
        printed, _ = process.communicate()  # until no process holds the pipe
    assert process.returncode == (-how if rank is None else 0), printed[-3000:]
    again = "stopped; continue with: torchrun --nproc-per-node 2 --no-python assay train"
    assert again in printed
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert (tmp_path / "ranks" / "sft" / "checkpoints" / f"step_{steps[-1]:06d}").is_dir()
