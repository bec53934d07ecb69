"""Completions of real models keep their recorded verdicts on the way through extraction and
judge.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from assay.extract import program
from assay.judge import Job
from assay.tasks import load
from assay.types import Check, Task, Verdict
from tests.judge.opened import judge_all

RUN_ON = (
    '\n\n\ndef unrelated(n):\n    """It\'s the next task.\n    """\n    return (n\n\nassert'
    " unrelated(1) == "
)


@pytest.fixture(scope="module")
def samples(public_data: Path) -> list[dict[str, Any]]:
    with gzip.open(public_data / "llm_samples/samples.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def tasks_of(samples: list[dict[str, Any]]) -> list[Task]:
    """The task of each completion, with the test that its verdict was recorded under."""
    with gzip.open(Path(os.environ["ASSAY_DATA"]) / "llm_samples/tests.jsonl.gz", "rt") as lines:
        tests = {(row["benchmark"], row["task_id"]): row["test"] for row in map(json.loads, lines)}
    known = {task.id: task for task in load("humaneval") + load("mbpp:all")}
    found = []
    for sample in samples:
        task, test = known[sample["task_id"]], tests[sample["benchmark"], sample["task_id"]]
        call = f"\n\ncheck({task.entry_point})" if sample["benchmark"] == "humaneval" else ""
        check = Check(test + call)
        found.append(
            Task(
                task.id,
                task.prompt,
                (check,),
                task.entry_point,
                stub=task.stub,
                setup=task.setup,
                reference=task.reference,
            )
        )
    return found


def said_by_a_chat_model(code: str, task: Task) -> str:
    return (
        f"Sure! Here's the code (as asked):\n\n```python\n{code}\n```\n\nIt's done:\n```\n>>>"
        f" {task.entry_point}\n```"
    )


def run_on(code: str, task: Task) -> str:
    return f"{code}{RUN_ON}"


def as_it_is(code: str, task: Task) -> str:
    return code


@pytest.mark.data("llm_samples", "humaneval", "mbpp")
@pytest.mark.long
def test_recorded_verdicts_survive_extraction(samples: list[dict[str, Any]]) -> None:
    manners = (as_it_is, said_by_a_chat_model, run_on)
    jobs = [
        Job(task, program(task, manners[n % 3](sample["code"], task)))
        for n, (sample, task) in enumerate(zip(samples, tasks_of(samples), strict=True))
    ]
    verdicts = judge_all(jobs)
    assert len(verdicts) == 1492
    unlike = [
        (sample["set"], sample["task_id"], sample["passed"], execution.verdict, execution.detail)
        for sample, execution in zip(samples, verdicts, strict=True)
        if sample["passed"] != (execution.verdict is Verdict.PASS)
    ]
    assert unlike == []
