"""The batch file for Slurm starts a run on every node."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

BATCH = Path(__file__).parents[2] / "examples" / "slurm.sh"
TOML = """
name = "batch"
tasks.train = "drills:train"
algorithm.name = "sft"
steps = 2
policy.tiny = { width = 64, layers = 2, heads = 2 }
"""
SLURM = {"SLURM_NNODES": "1", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "RANKS": "2"}


def started(folder: Path, srun: str) -> subprocess.CompletedProcess[str]:
    """The batch file with stand-ins for the two commands of Slurm's, on this machine."""
    (folder / "run.toml").write_text(TOML)
    (folder / "bin").mkdir()
    for name, script in (("srun", srun), ("scontrol", "echo 127.0.0.1")):
        tool = folder / "bin" / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(stat.S_IRWXU)
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(BATCH), "run.toml", "--seed", "3"], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **SLURM, "PATH": path, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip


def test_the_batch_file_starts_torchrun_on_every_node_with_the_runs_words(tmp_path: Path) -> None:
    assert started(tmp_path, 'echo "$@"').stdout.split() == [
        "torchrun", "--nnodes", "1", "--nproc-per-node", "2", "--shutdown-timeout", "600",
        "--rdzv-id", "7", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29500",
        "--no-python", "assay", "train", "run.toml", "--seed", "3",
    ]  # fmt: skip


@pytest.mark.long
def test_the_batch_file_trains_on_the_ranks_that_it_names(tmp_path: Path) -> None:
    done = started(tmp_path, 'exec "$@"')
    assert done.returncode == 0, done.stderr[-3000:]
    assert [path.name for path in (tmp_path / "runs").rglob("step_*")] == ["step_000002"]
