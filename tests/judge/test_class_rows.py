"""ClassEval's classes and LeetCodeDataset's rows pass with their own solutions."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.judge import Job, judge_all
from assay.types import Check, Task, TestFunctions

FORGEABLE = {"ClassEval_50": {"pass", "pass forgeable"}}
"""It changes a file that the test wrote, as its reference does."""

TIMED = "ClassEval_20"
"""Its test asks that the program sees the same second as the test: some runs do not."""


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(Path(os.environ["ASSAY_DATA"], name))]


def verdicts(tasks: list[tuple[Task, str]]) -> dict[str, set[str]]:
    """By task: the verdicts on its solution, without the reference and with it."""
    jobs = [Job(task, program) for task, program in tasks]
    jobs += [Job(replace(task, reference=program), f"{program}\n") for task, program in tasks]
    found: dict[str, set[str]] = {}
    for job, execution in zip(jobs, judge_all(jobs, slots=2), strict=True):
        ended = f"{execution.verdict}{' forgeable' * execution.forgeable}"
        found.setdefault(job.task.id, set()).add(ended)
    return found


def class_tasks() -> list[Task]:
    """ClassEval's rows, with their solutions as references."""
    tasks = []
    for row in rows("class_tasks/classeval.jsonl.gz"):
        imports = "\n".join(row["import_statement"])
        tests = (TestFunctions(f"{imports}\n{row['test']}"),)
        solution = f"{imports}\n{row['solution_code']}"
        tasks.append(Task(row["task_id"], "", tests, row["class_name"], reference=solution))
    return tasks


@pytest.mark.data("class_tasks")
def test_classes_pass_with_their_own_solutions() -> None:
    tasks = [(replace(task, reference=None), task.reference or "") for task in class_tasks()]
    found = verdicts(tasks)
    for _ in range(3):
        if found[TIMED] != {"pass"}:
            found |= verdicts([(task, code) for task, code in tasks if task.id == TIMED])
    assert len(found) == 10
    assert found == {task.id: FORGEABLE.get(task.id, {"pass"}) for task, _ in tasks}


@pytest.mark.data("leetcode_dataset")
def test_methods_that_take_and_return_nodes_pass() -> None:
    tasks = []
    for row in rows("leetcode_dataset/train_rows.jsonl.gz"):
        check = Check(f"{row['test']}\ncheck({row['entry_point']})")
        task = Task(row["task_id"], "", (check,), "Solution", setup=row["prompt"])
        tasks.append((task, row["prompt"] + row["completion"]))
    found = verdicts(tasks)
    assert len(found) == 30
    assert set().union(*found.values()) == {"pass"}
