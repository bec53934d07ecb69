"""The judge without torch: what works without the extra `train`, and what the rest says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.extras import advice_on, extras

BARE = """
import sys
from importlib.machinery import PathFinder
from assay.extras import extras
absent = {name for name in extras() if extras()[name] == "train"}
class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Present
from assay.cli import main
main()
"""
"""Runs the command line where nothing of the extra can be imported."""
ROWS: list[dict[str, Any]] = [
    {"id": "add", "prompt": "Write add(a, b).", "entry_point": "add",
     "tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
     "reference": "def add(a, b):\n    return a + b\n"},
    {"id": "sum", "prompt": "Read two numbers and print their sum.",
     "exchanges": [{"stdin": "1 2", "stdout": "3"}, {"stdin": "-1 1", "stdout": "0"}],
     "reference": "print(sum(map(int, input().split())))\n"},
]  # fmt: skip


def bare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], cwd=folder, capture_output=True, text=True,
        check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return "tasks.jsonl"


def test_a_task_is_checked_and_samples_are_graded_without_torch(tmp_path: Path, tasks: str) -> None:
    checked = bare(tmp_path, "check", tasks)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith("the prompt of add:\n")
    assert checked.stdout.endswith("\nkept 2 of 2 tasks\n")
    samples = [{"task_id": row["id"], "solution": row["reference"]} for row in ROWS]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    graded = bare(tmp_path, "grade", "--tasks", tasks, "--samples", "samples.jsonl", "--json")
    assert graded.returncode == 0, graded.stderr
    assert json.loads(graded.stdout)["pass_at_1"] == 1.0


@pytest.mark.parametrize(
    "words",
    ["train demo", "plan demo", "show-prompt demo", "view runs", "overlap drills:test drills:train",
     "eval --model tiny --tasks drills:test", "screen tiny drills:test --output x.jsonl",
     "check humaneval", "export a b"],
)  # fmt: skip
def test_a_command_that_needs_the_extra_says_in_one_line_what_to_install(
    words: str, tmp_path: Path
) -> None:
    done = bare(tmp_path, *words.split())
    assert done.returncode == 2, done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert "pip install -e '.[train]'" in line
    assert "Traceback" not in done.stderr


def test_the_smallest_extra_that_brings_a_package_is_named() -> None:
    assert (extras()["torch"], extras()["gguf"], extras()["math_verify"]) == (
        "train", "gguf", "maths"
    )  # fmt: skip
    assert "pydantic" not in extras()
    absent = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    assert "this needs torch" in advice_on(absent)
    assert advice_on(ModuleNotFoundError("No module named 'mine'", name="mine")) == ""
    assert advice_on(ImportError("cannot import name 'x' from 'torch'", name="torch")) == ""
