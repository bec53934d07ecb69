"""The table of seed 001 (SFT, then REINFORCE or PPO, two penalties for length, two batches) on the
built-in model, by one command.

    python -m bench.seed001 [--seeds 0..2]

It trains every combination as `assay train recipes/drills_seed001.toml --set ...`, which goes on
where it was stopped, and compares all runs with the SFT that they started from.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

RECIPE = Path(__file__).parent.parent / "recipes" / "drills_seed001.toml"
AXES = (
    'stages.rl.algorithm={name="reinforce"},{name="ppo",critic=false,epochs=4}',
    "stages.rl.rollout.tasks_per_step=4,8",
    "stages.rl.rewards.length.alpha=0.01,0.03",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..2", help="as in `assay train --seeds`")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    given = parser.parse_args()
    assay, place = [sys.executable, "-m", "assay"], given.folder / "seed001"
    folder = ["--folder", str(given.folder), "--name", place.name, "--seeds", given.seeds]
    axes = [word for axis in AXES for word in ("--set", axis)]
    subprocess.run([*assay, "train", str(RECIPE), *folder, *axes], check=True)
    runs = sorted(path for path in place.iterdir() if path.is_dir())
    subprocess.run([*assay, "compare", *(str(run) for run in runs[:1])], check=True)
    stages = [str(runs[0] / "sft"), *(str(run / "rl") for run in runs)]
    subprocess.run([*assay, "compare", *stages], check=True)


if __name__ == "__main__":
    main()
