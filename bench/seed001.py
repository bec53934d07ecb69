"""The table of seed 001 (SFT, then REINFORCE or PPO, two penalties for length, two batches) on the
built-in model, by one command.

    python -m bench.seed001 [--seeds 3] [--jobs 1]

Each of the eight is `assay train recipes/drills_seed001.toml` with other settings of its stage
`rl`, and starts from the SFT of its seed, which is trained once. PPO takes four steps a batch, each
with a quarter of the learning rate. A run that was cut off goes on.
The end compares all runs with the model before training, over seeds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import tomli_w

RECIPE = Path(__file__).parent.parent / "recipes" / "drills_seed001.toml"
ALGORITHMS = "reinforce", "ppo"
BATCHES = 4, 8
PENALTIES = 0.01, 0.03


def train(settings: Path, run: Path, seed: int, more: Sequence[str], **changes: object) -> None:
    options = {"seed": seed, "name": run.name, "folder": run.parent} | changes
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run(
        [sys.executable, "-m", "assay", "train", str(settings), *words, *more], check=True
    )


def train_sft(folder: Path, more: Sequence[str], seed: int) -> Path:
    """Train the SFT of a seed: the folder of its run."""
    run = folder / f"sft-seed-{seed}"
    train(folder / "sft.toml", run, seed, more)
    return run


def train_rl(
    more: Sequence[str], sft: Path, seed: int, name: str, batch: int, penalty: float
) -> Path:
    """Train one of the eight from the model of a run of SFT: the folder of its run."""
    run = sft.parent / f"{name}-batch-{batch}-penalty-{penalty}-seed-{seed}"
    (checkpoint,) = (sft / "sft" / "checkpoints").iterdir()
    model = run / "start"  # in the run's folder, so that runs over seeds differ in nothing else
    shutil.copytree(checkpoint, model, dirs_exist_ok=True)
    changes: dict[str, object] = {
        "policy.model": model,
        "stages.rl.algorithm.name": name,
        "stages.rl.rollout.tasks_per_step": batch,
        "stages.rl.rewards.length.alpha": penalty,
    }
    if name == "ppo":
        four = {"algorithm.critic": "false", "algorithm.epochs": 4, "optimizer.lr": 2.5e-5}
        changes |= {f"stages.rl.{key}": value for key, value in four.items()}
    train(sft.parent / "rl.toml", run, seed, more, **changes)
    return run


def write_settings(folder: Path) -> None:
    """Write the recipe's stages apart, a file each."""
    recipe = tomllib.loads(RECIPE.read_text())
    for stage, settings in recipe["stages"].items():
        text = tomli_w.dumps(recipe | {"stages": {stage: settings}})
        (folder / f"{stage}.toml").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "seed001")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    # Any other option is a setting of each run, such as --evaluate.limit 2.
    arguments, more = parser.parse_known_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_settings(arguments.folder)
    with ThreadPoolExecutor(arguments.jobs) as jobs:
        seeds = range(arguments.seeds)
        sfts = list(jobs.map(partial(train_sft, arguments.folder, more), seeds))
        eight = product(zip(sfts, seeds, strict=True), ALGORITHMS, BATCHES, PENALTIES)
        runs = sfts + list(jobs.map(lambda job: train_rl(more, *job[0], *job[1:]), eight))
    command = [sys.executable, "-m", "assay", "compare", *map(str, runs)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
