"""Rows of repositories with a bug that is put into their tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.patches import unified
from assay.judge.repository_tree import tree_of
from assay.tasks import load
from assay.types import RepositoryTests, Task, Verdict

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = RIGHT.replace("+", "-")
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
KEPT = "\n\ndef test_nothing():\n    assert add(0, 0) == 0\n"
BUG = unified({"calc.py": RIGHT, "test_calc.py": TESTS + KEPT, "old.txt": "1"},
              {"calc.py": WRONG, "test_calc.py": KEPT, "old.txt": None})  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def loaded(folder: Path, configuration: str = "", **fields: Any) -> Task:
    (folder / "calc").mkdir()
    files = {"calc.py": RIGHT, "test_calc.py": TESTS + KEPT, "old.txt": "1", "same.txt": "2",
             "pytest.ini": f"[pytest]\n{configuration}"}  # fmt: skip
    for name, text in files.items():
        (folder / "calc" / name).write_text(text)
    row = {
        "id": "calc/1", "prompt": "add subtracts", "tree": "calc", "bug": BUG,
        "test_patch": unified({"test_calc.py": KEPT}, {"test_calc.py": TESTS + KEPT}),
        "reference": unified({"calc.py": WRONG}, {"calc.py": RIGHT}),
        "fail_to_pass": ["test_calc.py::test_add"],
        "pass_to_pass": ["test_calc.py::test_nothing"], "tags": {"operator": "arithmetic"},
    }  # fmt: skip
    (folder / "tasks.jsonl").write_text(json.dumps(row | fields) + "\n")
    (task,) = load(str(folder / "tasks.jsonl"))
    return task


def check_of(task: Task) -> RepositoryTests:
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    return check


def test_the_policys_tree_has_the_bug_and_shares_the_other_files(tmp_path: Path) -> None:
    task = loaded(tmp_path)
    tree, original = tree_of(check_of(task)), tmp_path / "calc"
    assert (tree / "calc.py").read_text() == WRONG
    assert (tree / "test_calc.py").read_text() == KEPT
    assert not (tree / "old.txt").exists()
    copies = [*(tmp_path / "cache").rglob("same.txt")]
    assert len(copies) == 2
    assert copies[0].samefile(copies[1])
    assert not copies[0].samefile(original / "same.txt"), "an edit of the user's reaches no copy"
    assert (original / "calc.py").read_text() == RIGHT
    assert (original / "test_calc.py").read_text() == TESTS + KEPT
    assert task.tags == {"operator": "arithmetic"}
    (again,) = load(str(tmp_path / "tasks.jsonl"))
    assert again == task


def test_the_judge_brings_the_hidden_test_back(tmp_path: Path) -> None:
    task = loaded(tmp_path, "addopts = -v\n")
    jobs = [Job(task, task.reference), Job(task, "")]
    right, nothing = judge_all(jobs, stop_early=False)
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 2, 2)
    assert (nothing.verdict, nothing.passed, nothing.total) == (Verdict.WRONG, 1, 2)


@pytest.mark.parametrize("bug", ["no diff", BUG.replace("a + b", "a * b"), ["a"]])
def test_a_bug_that_the_tree_does_not_take_is_the_rows_fault(tmp_path: Path, bug: Any) -> None:
    with pytest.raises(
        DataError, match=r"tasks\.jsonl, line 1: 'bug' is no diff that 'tree' takes"
    ):
        loaded(tmp_path, bug=bug)
    assert all(file.read_text() == RIGHT for file in (tmp_path / "cache").rglob("calc.py"))


def test_a_diff_keeps_the_line_ends_of_its_files_and_loses_those_that_a_tool_gave_it(
    tmp_path: Path,
) -> None:
    ends = {"calc.py": WRONG.replace("\n", "\r\n")}, {"calc.py": RIGHT.replace("\n", "\r\n")}
    (tmp_path / "calc").mkdir()
    (tmp_path / "calc" / "calc.py").write_bytes(ends[0]["calc.py"].encode())
    right = unified(*ends)
    hidden = unified({}, {"test_calc.py": (TESTS + KEPT).replace("\n", "\r\n")})
    row = {"prompt": "add subtracts", "tree": "calc", "fail_to_pass": ["test_calc.py::test_add"]}
    rows = [row | {"id": "kept", "reference": right, "test_patch": hidden},
            row | {"id": "tool", "reference": right.replace("\n", "\r\n"),
                   "test_patch": hidden.replace("\n", "\r\n")}]  # fmt: skip
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tasks = load(str(tmp_path / "tasks.jsonl"))
    assert [(task.reference, check_of(task).test_patch) for task in tasks] == [(right, hidden)] * 2
    (one, _) = judge_all([Job(task, task.reference) for task in tasks])
    assert one.verdict is Verdict.PASS, one.detail
