"""Small settings for whole runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TINY = """
name = "small"
[policy.tiny]
vocabulary = 320
width = 64
layers = 2
heads = 2
[tasks]
train = "drills:train"
limit = 40
[rollout]
tasks_per_step = 4
group_size = 4
max_tokens = 48
[judge]
slots = 2
[stages.sft]
steps = 4
algorithm.name = "sft"
dataset.batch_size = 16
optimizer = { lr = 3e-3 }
[stages.grpo]
steps = 3
algorithm = { name = "grpo", kl = 0.01 }
optimizer = { lr = 1e-3 }
"""


def write(folder: Path, text: str = TINY) -> Path:
    file = folder / "small.toml"
    file.write_text(text)
    return file


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "assay", *map(str, words)]


def assay(*words: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `folder`, as a user would."""
    return subprocess.run(
        command(*words), cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "COLUMNS": "200", **environment},
    )  # fmt: skip
