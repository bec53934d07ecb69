"""Objects of the program across the wall: what is carried, what is forgeable, what is not judged.

objects.txt holds programs, and after each the tests of it: name | entry point | verdict |
`forgeable` where it is (`*`: either).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.types import Execution
from tests.judge.jobs import as_program, task

TEXT = Path(__file__).with_name("objects.txt").read_text()


def read_cases() -> dict[str, tuple[Job, str, str]]:
    found, program = {}, ""
    for block in re.split(r"^##### ", TEXT, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        if head == "program":
            program = body
            continue
        name, entry, verdict, forgeable = head.split("|")
        job = Job(task(entry.strip(), as_program(body)), program)
        found[name.strip()] = job, verdict.strip(), forgeable.strip()
    return found


CASES = read_cases()


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    jobs = [job for job, _, _ in CASES.values()]
    return dict(zip(CASES, judge_all(jobs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_an_object_is_carried_or_forgeable_or_not_judged(
    name: str, executions: dict[str, Execution]
) -> None:
    _, verdict, forgeable = CASES[name]
    execution = executions[name]
    assert str(execution.verdict) == verdict, execution
    assert forgeable == "*" or execution.forgeable is bool(forgeable), execution
