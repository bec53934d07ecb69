"""The recorded completions of real models, as jobs with the verdict that their authors recorded."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.judge import Job
from assay.tasks import load
from assay.tasks.python_source import around
from assay.tasks.rows import Row
from assay.types import Check, Task


@dataclass(frozen=True)
class Sample:
    name: str
    job: Job
    passed: bool


def rows(file: str) -> list[dict[str, Any]]:
    with gzip.open(Path(os.environ["ASSAY_DATA"]) / "llm_samples" / file, "rt") as lines:
        return [json.loads(line) for line in lines]


def samples() -> list[Sample]:
    tests = {(row["benchmark"], row["task_id"]): row for row in rows("tests.jsonl.gz")}
    references = {
        task.id: task.reference for name in ("humaneval", "mbpp:all") for task in load(name)
    }
    tasks = {key: task_of(row, references[row["task_id"]]) for key, row in tests.items()}
    return [
        sample_of(row, tasks[row["benchmark"], row["task_id"]]) for row in rows("samples.jsonl.gz")
    ]


def sample_of(row: dict[str, Any], task: Task) -> Sample:
    program = (
        row.get("prefix", "") + (task.prompt if row["code_kind"] == "body" else "") + row["code"]
    )
    if "test_override" in row:
        task = replace(task, checks=(check_of(row["test_override"], row),))
    return Sample(f"{row['set']} {row['task_id']}", Job(task, program), row["passed"])


def task_of(test: dict[str, Any], reference: str | None) -> Task:
    row = Row(test, "tests.jsonl.gz")
    return Task(
        id=f"{test['benchmark']} {test['task_id']}",
        prompt=test["prompt"],
        checks=(check_of(test["test"], test),),
        entry_point=test["entry_point"],
        setup=around(test["prompt"], row, "prompt", test["entry_point"]),
        reference=reference,
    )


def check_of(source: str, row: dict[str, Any]) -> Check:
    """mbpp500-ldb's tests call the function themselves; HumanEval's only define `check`."""
    call = f"\ncheck({row['entry_point']})" if row["benchmark"] == "humaneval" else ""
    return Check(source + call)
