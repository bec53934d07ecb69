"""Every algorithm makes the tiny policy better at drills: one table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from assay.config.load_settings import load_plan
from assay.tasks import load
from assay.train.stages import run_plan
from tests.end_to_end.recipes import write

pytestmark = pytest.mark.long
SETTINGS = """
name = "up"
trackers = ["jsonl"]
plugins = ["{plugin}"]
[tasks]
train = "easy"
[policy.tiny]
vocabulary = 320
width = 64
layers = 2
heads = 2
[rollout]
tasks_per_step = 24
group_size = 8
max_tokens = 40
[stages.sft]
steps = 120
algorithm.name = "sft"
dataset.batch_size = 32
optimizer = { lr = 6e-3, schedule = "linear", warmup_steps = 5 }
""".replace("{plugin}", str(Path(__file__).parent / "easy.py"))
RL = """
[stages.rl]
steps = {steps}
algorithm = {{ {algorithm} }}
optimizer = {{ lr = {lr}, warmup_steps = 4 }}
"""
TABLE = {
    "grpo, two epochs near the reference": (
        'name = "grpo", epochs = 2, kl = 0.01, scale = "batch"',
        10,
        8e-4,
    ),
    "dr_grpo": ('name = "dr_grpo"', 14, 1e-3),
    "dapo": ('name = "dapo", max_resamples = 2, overlong_share = 0.0', 20, 1.5e-3),
    "gspo, two minibatches": ('name = "gspo", minibatches = 2', 14, 8e-4),
    "cispo": ('name = "cispo"', 14, 1e-3),
    "rloo, the divergence in the reward": (
        'name = "rloo", kl = 0.01, kl_in = "reward", kl_estimator = "k1"',
        14,
        1e-3,
    ),
    "reinforce, running baseline": ('name = "reinforce", baseline = "running"', 12, 1e-3),
    "ppo with a critic": ('name = "ppo", epochs = 2, entropy_bonus = 0.001', 10, 8e-4),
    "ppo without a critic": ('name = "ppo", critic = false, epochs = 2', 10, 8e-4),
    "dpo": ('name = "dpo", beta = 0.3', 20, 3e-4),
    "dppo, two minibatches": ('name = "dppo", minibatches = 2', 14, 8e-4),
    "max_rl": ('name = "max_rl"', 14, 1e-3),
    "sapo, two epochs": ('name = "sapo", epochs = 2', 14, 8e-4),
    "cispo to the sampler": ('name = "cispo", anchor = "sampler", minibatches = 2', 14, 8e-4),
    "grpo, prompts weigh the same": (
        'name = "grpo", loss_mean = "prompts", geometric_mask = [0.9, 1.1]',
        14,
        1e-3,
    ),
    "echo": ('name = "echo"', 14, 1e-3),
    "raft": ('name = "raft"', 14, 1e-3),
    "orpo": ('name = "orpo", beta = 0.3', 14, 1e-3),
    "kto": ('name = "kto", beta = 0.3', 20, 3e-4),
    "opd": ('name = "opd", teacher = "{teacher}"', 12, 1e-3),
    "opd, the sampled token": ('name = "opd", kl = "sampled", teacher = "{teacher}"', 14, 1e-3),
    "dppo, the kl": ('name = "dppo", divergence = "kl", epochs = 2', 10, 8e-4),
}


def numbers(folder: Path, stage: str, name: str) -> list[float]:
    lines = (folder / "runs/up" / stage / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that imitates demonstrations of which half are wrong."""
    folder = tmp_path_factory.mktemp("taught")
    file = write(folder, SETTINGS)
    run_plan(load_plan(file, ["--folder", str(folder / "runs")]))
    return folder


def test_sft_makes_the_demonstrations_likely(taught: Path) -> None:
    losses = numbers(taught, "sft", "loss")
    assert fmean(losses[-5:]) < 0.35 * losses[0]


@pytest.fixture(scope="module")
def teacher(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learned which demonstrations were wrong."""
    folder = tmp_path_factory.mktemp("teacher")
    learn(taught, folder, 'name = "grpo"', 24, 1e-3)
    return max((folder / "runs/up/rl/checkpoints").iterdir())


def learn(taught: Path, folder: Path, algorithm: str, steps: int, rate: float) -> None:
    """Go on from the taught policy, in `folder`."""
    model = max((taught / "runs/up/sft/checkpoints").iterdir())
    text = SETTINGS.split("[stages.sft]")[0] + RL.format(steps=steps, algorithm=algorithm, lr=rate)
    words = ["--folder", str(folder / "runs"), "--policy.model", str(model)]
    run_plan(load_plan(write(folder, text), words))


@pytest.mark.parametrize("name", TABLE)
def test_the_reward_goes_up(
    taught: Path, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    algorithm, steps, rate = TABLE[name]
    if "{teacher}" in algorithm:
        algorithm = algorithm.format(teacher=request.getfixturevalue("teacher"))
    learn(taught, tmp_path, algorithm, steps, rate)
    rates = numbers(tmp_path, "rl", "reward/pass_rate")
    assert rates[0] < 0.7, "there is room"
    assert fmean(rates[-4:]) > rates[0] + 0.1, f"{name}: {rates}"


def test_dpo_learns_from_a_file_of_pairs(taught: Path, tmp_path: Path) -> None:
    tasks = load("easy")
    rows = [
        {"task_id": task.id, "chosen": right, "rejected": wrong}
        for task in tasks
        for right, wrong in [task.demonstrations]
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    learn(taught, tmp_path, f'name = "dpo", pairs = "{tmp_path / "pairs.jsonl"}"', 8, 1e-3)
    losses, right = numbers(tmp_path, "rl", "loss"), numbers(tmp_path, "rl", "learn/accuracy")
    assert losses[0] == pytest.approx(math.log(2), abs=1e-5)
    assert losses[-1] < 0.5
    assert right[-1] > 0.75


def test_kto_learns_from_a_file_of_labels(taught: Path, tmp_path: Path) -> None:
    tasks = load("easy")
    rows = [
        {"task_id": task.id, "completion": reply, "label": reply == task.demonstrations[0]}
        for task in tasks
        for reply in task.demonstrations
    ]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    learn(taught, tmp_path, f'name = "kto", labels = "{tmp_path / "labels.jsonl"}"', 8, 1e-3)
    losses, margins = numbers(tmp_path, "rl", "loss"), numbers(tmp_path, "rl", "learn/margin")
    assert losses[0] == pytest.approx(0.5, abs=1e-5)
    assert losses[-1] < 0.45
    assert margins[0] == pytest.approx(0.0, abs=1e-4)
    assert fmean(margins[-2:]) > 1, (losses, margins, numbers(tmp_path, "rl", "learn/accuracy"))


def test_every_registered_algorithm_is_in_the_table() -> None:
    from assay.algorithms import algorithms

    bundled: list[Callable[..., object]] = [algorithms[name].make for name in algorithms]
    own = {make.__name__ for make in bundled if make.__module__.startswith("assay.algorithms")}
    assert own - {"sft"} == {settings.split('"')[1] for settings, _, _ in TABLE.values()}
