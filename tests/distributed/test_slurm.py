"""`--dry-run` prints a batch file, which starts a run on every node."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOML = """
name = "batch"
tasks.train = "drills:train"
algorithm.name = "sft"
steps = 2
policy.tiny = { width = 64, layers = 2, heads = 2 }
[slurm]
nodes = 1
gpus_per_node = 8
ranks_per_node = 2
time = "1:00:00"
setup = ["echo ready"]
"""


def printed(folder: Path) -> str:
    (folder / "run.toml").write_text(TOML)
    words = [sys.executable, "-m", "assay", "train", "run.toml", "--seed", "3", "--dry-run"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.partition("\n\n")[2]


def test_a_dry_run_prints_the_batch_file_of_the_run(tmp_path: Path) -> None:
    assert printed(tmp_path).splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=batch",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --time=1:00:00",
        "#SBATCH --output=%x-%j.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "set -euo pipefail",
        "echo ready",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 2 --shutdown-timeout 600"
        ' --rdzv-id $SLURM_JOB_ID --rdzv-backend c10d --rdzv-endpoint "$first:29500"'
        " --no-python assay train run.toml --seed 3",
    ]


@pytest.mark.long
def test_the_batch_file_trains_on_the_ranks_that_it_names(tmp_path: Path) -> None:
    """With stand-ins for the two commands of Slurm's, on this machine."""
    for name, script in (("srun", 'exec "$@"'), ("scontrol", "echo 127.0.0.1")):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(stat.S_IRWXU)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_NNODES": "1", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here"}
    done = subprocess.run(
        ["bash", "-c", printed(tmp_path)], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, **slurm, "PATH": path, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ready" in done.stdout
    assert [path.name for path in (tmp_path / "runs").rglob("step_*")] == ["step_000002"]
