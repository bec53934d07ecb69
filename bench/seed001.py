"""The table of seed 001 (SFT, then REINFORCE or PPO, two penalties for length, two batches) on the
built-in model, by one command.

    python -m bench.seed001 [--seeds 3]

Each of the eight is `assay train recipes/drills_seed001.toml` with other settings of its stage
`rl`, and starts from the SFT of its seed, which is trained once. A run that was cut off goes on.
The end compares all runs with the model before training, over seeds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import tomli_w

RECIPE = Path(__file__).parent.parent / "recipes" / "drills_seed001.toml"
ALGORITHMS = "reinforce", "ppo"
BATCHES = 4, 8
PENALTIES = 0.01, 0.03


def train(settings: Path, run: Path, seed: int, **changes: object) -> None:
    options = {"seed": seed, "name": run.name, "folder": run.parent} | changes
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run([sys.executable, "-m", "assay", "train", str(settings), *words], check=True)


def runs_of(seed: int, folder: Path) -> list[Path]:
    """Train SFT, and all combinations from its model: the folders of their runs."""
    sft = folder / f"sft-seed-{seed}"
    train(settings_of("sft", folder), sft, seed)
    (checkpoint,) = (sft / "sft" / "checkpoints").iterdir()
    runs = [sft]
    for name, batch, penalty in product(ALGORITHMS, BATCHES, PENALTIES):
        run = folder / f"{name}-batch-{batch}-penalty-{penalty}-seed-{seed}"
        model = run / "start"  # in the run's folder, so that runs over seeds differ in nothing else
        shutil.copytree(checkpoint, model, dirs_exist_ok=True)
        changes: dict[str, object] = {
            "policy.model": model,
            "stages.rl.algorithm.name": name,
            "stages.rl.rollout.tasks_per_step": batch,
            "stages.rl.rewards.length.alpha": penalty,
        }
        if name == "ppo":
            changes |= {"stages.rl.algorithm.critic": "false", "stages.rl.algorithm.epochs": 4}
        train(settings_of("rl", folder), run, seed, **changes)
        runs.append(run)
    return runs


def settings_of(stage: str, folder: Path) -> Path:
    """The recipe with one of its stages alone."""
    recipe = tomllib.loads(RECIPE.read_text())
    recipe["stages"] = {stage: recipe["stages"][stage]}
    file = folder / f"{stage}.toml"
    file.write_text(tomli_w.dumps(recipe))
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "seed001")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    runs = [run for seed in range(given.seeds) for run in runs_of(seed, given.folder)]
    command = [sys.executable, "-m", "assay", "compare", *map(str, runs)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
