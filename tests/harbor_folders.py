"""Folders of tasks as Harbor has them, made for a test."""

from __future__ import annotations

from pathlib import Path

from assay.tasks import load
from assay.types import Task

TASK = """schema_version = "1.4"
[verifier]
timeout_sec = 30.0
[agent]
timeout_sec = 30.0
"""
DOCKERFILE = "FROM ubuntu:24.04\nWORKDIR /app\nCOPY . /app\n"
TEST = """#!/bin/bash
if [ "$(cat /app/sum.txt)" = "$(python3 /tests/total.py < /app/numbers.txt)" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
SOLVE = """#!/bin/bash
cat /solution/right.txt > sum.txt
"""
FILES = {
    "task.toml": TASK,
    "instruction.md": "Write the sum of numbers.txt into sum.txt.",
    "environment/Dockerfile": DOCKERFILE,
    "environment/numbers.txt": "1\n2\n3\n",
    "tests/test.sh": TEST,
    "tests/total.py": "import sys\n\nprint(sum(map(int, sys.stdin)))\n",
    "solution/solve.sh": SOLVE,
    "solution/right.txt": "6\n",
}


def harbor_folder(home: Path, **files: str | None) -> Path:
    """A folder with one task, which asks for a sum. files: others or other texts, by paths with
    `__` for slashes; None leaves one out.
    """
    changed = {path.replace("__", "/"): text for path, text in files.items()}
    for path, text in ({**FILES, **changed}).items():
        if text is not None:
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
    return home


def harbor_task(home: Path, script: str = TEST, **files: str | None) -> Task:
    """Such a task, with this test script."""
    paths = {"tests__test.sh": script, **files}
    (task,) = load(f"harbor:{harbor_folder(home, **paths)}")
    return task
