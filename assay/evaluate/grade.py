"""Judges completions that were written elsewhere: rows of a file in, verdicts in a file beside it
out.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.evaluate.report import by_task
from assay.files import write_atomically
from assay.judge import Job, judge_all
from assay.maths.estimates import Interval, mean_pass_at_k, pass_interval
from assay.registry import suggest
from assay.sandbox.limits import Limits
from assay.tasks.rows import Row, file_rows
from assay.types import Execution, Task, Verdict


@dataclass(frozen=True, slots=True)
class Graded:
    """What became of a file of samples."""

    samples: int
    """Rows in the file."""
    tasks: int
    """Tasks that have a judged row."""
    pass_at_1: float
    """Mean over tasks, in [0, 1]; rows lost to the machine are left out."""
    interval: Interval
    """Of `pass_at_1`, 95 %, over tasks."""
    verdicts: dict[str, int]
    """Rows by verdict."""
    file: str
    """Where the verdict of each row was written."""


def grade(
    samples: Path, tasks: Sequence[Task], *, limits: Limits, slots: int | None, allow_weak: bool
) -> Graded:
    """Judge every row of `samples` and write FILE.verdicts.jsonl beside it, whole or not at all.

    A row is {"task_id", "completion"} for what follows the task's stub, or {"task_id", "solution"}
    for a whole program. Raises DataError for a file or row that cannot be used, before anything is
    judged.
    """
    jobs = read_samples(samples, tasks)
    if not os.access(samples.parent, os.W_OK):
        raise DataError(
            f"{samples.parent} cannot be written to, and the verdicts go there; copy {samples.name}"
            " elsewhere"
        )
    executions = judge_all(
        jobs, limits=limits, slots=slots, stop_early=False, allow_weak=allow_weak
    )
    file = samples.with_name(f"{samples.name}.verdicts.jsonl")
    rows = [_row(job, execution) for job, execution in zip(jobs, executions, strict=True)]
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in rows))
    return _sum_up(jobs, executions, file)


def read_samples(file: Path, tasks: Sequence[Task]) -> list[Job]:
    """The jobs in a file of samples. Raises DataError naming the line for a row that cannot be
    used.
    """
    known = {task.id: task for task in tasks}
    jobs = [_job(row, known) for row in file_rows(file)]
    if not jobs:
        raise DataError(
            f'{file} holds no samples; write rows such as {{"task_id": "HumanEval/0", "completion":'
            ' "..."}'
        )
    return jobs


def _job(row: Row, known: dict[str, Task]) -> Job:
    name = row.text("task_id")
    task = known.get(name)
    if task is None:
        hint = (
            suggest(name, list(known))
            if len(known) < 20
            else f"the task set has ids such as {next(iter(known))!r}"
        )
        raise row.wrong(f"unknown task_id {name!r}; {hint}")
    if ("completion" in row.fields) == ("solution" in row.fields):
        raise row.wrong(
            'give either "completion" (what follows the stub) or "solution" (a whole program)'
        )
    if "solution" in row.fields:
        return Job(task, row.text("solution"))
    return Job(task, task.stub + row.text("completion"))


def _row(job: Job, execution: Execution) -> dict[str, Any]:
    return {
        "task_id": job.task.id,
        "verdict": str(execution.verdict),
        "passed": execution.verdict is Verdict.PASS,
        "checks_passed": execution.passed,
        "checks": execution.total,
        "detail": execution.detail,
        "cpu_seconds": round(execution.cpu_seconds, 4),
    }


def _sum_up(jobs: Sequence[Job], executions: Sequence[Execution], file: Path) -> Graded:
    pairs = [(job.task.id, execution) for job, execution in zip(jobs, executions, strict=True)]
    judged = by_task(
        (task, one.verdict is Verdict.PASS)
        for task, one in pairs
        if one.verdict is not Verdict.INFRA
    )
    counts = [(task.samples, task.passed) for task in judged]
    return Graded(
        samples=len(jobs),
        tasks=len(counts),
        pass_at_1=mean_pass_at_k(counts, 1) if counts else 0.0,
        interval=pass_interval(counts) if counts else Interval(0.0, 1.0),
        verdicts=dict(Counter(str(execution.verdict) for execution in executions)),
        file=str(file),
    )
