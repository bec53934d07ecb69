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
from itertools import product
from pathlib import Path

RECIPE = Path(__file__).parent.parent / "recipes" / "drills_seed001.toml"
ALGORITHMS = "reinforce", "ppo"
BATCHES = 4, 8
PENALTIES = 0.01, 0.03


def runs_of(seed: int, folder: Path) -> list[Path]:
    """Train all combinations from one SFT: the folders of their runs."""
    runs: list[Path] = []
    for name, batch, penalty in product(ALGORITHMS, BATCHES, PENALTIES):
        run = folder / f"{name}-batch-{batch}-penalty-{penalty}-seed-{seed}"
        if runs and not run.exists():
            shutil.copytree(runs[0] / "sft", run / "sft")
        settings = {
            "seed": seed,
            "name": run.name,
            "folder": folder,
            "stages.rl.algorithm.name": name,
            "stages.rl.rollout.tasks_per_step": batch,
            "stages.rl.rewards.length.alpha": penalty,
        }
        if name == "ppo":
            settings |= {"stages.rl.algorithm.critic": "false", "stages.rl.algorithm.epochs": 4}
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        subprocess.run([sys.executable, "-m", "assay", "train", str(RECIPE), *words], check=True)
        runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "seed001")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    runs = [runs_of(seed, given.folder) for seed in range(given.seeds)]
    firsts = [one for one, *_ in runs]
    others = [run / "rl" for _, *more in runs for run in more]
    command = [sys.executable, "-m", "assay", "compare", *map(str, [*firsts, *others])]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
