"""Right programs with rich features are never wrong: they pass, or their task cannot be judged.

rich_programs.txt holds, after each name and what comes of it (`pass`, `forgeable`, `unjudged`), the
program, `---` and the test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.types import Cause, Execution, Verdict
from tests.judge.jobs import task

TEXT = Path(__file__).with_name("rich_programs.txt").read_text()
LIMITS = Limits(cpu_seconds=2, wall_seconds=5)


def read_rows() -> dict[str, tuple[str, str, str, str]]:
    """By name: entry point, program, test and outcome."""
    rows = {}
    for block in re.split(r"^##### ", TEXT, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        name, _, outcome = head.partition(" | ")
        program, _, test = body.partition("\n---\n")
        names = re.findall(r"^(?:async def |def |class )?(\w+)(?: =|\(|:)", program, re.MULTILINE)
        entry = next(it for it in ["f", *names] if it in names and re.search(rf"\b{it}\b", test))
        rows[name] = entry, program, test, outcome
    return rows


ROWS = read_rows()


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    jobs = [Job(task(entry, test), program) for entry, program, test, _ in ROWS.values()]
    return dict(zip(ROWS, judge_all(jobs, LIMITS), strict=True))


def outcome_of(execution: Execution) -> str:
    passed = execution.verdict is Verdict.PASS
    return "forgeable" if passed and execution.forgeable else str(execution.verdict)


@pytest.mark.parametrize("name", ROWS)
def test_a_right_program_with_rich_features_is_never_wrong(
    name: str, executions: dict[str, Execution]
) -> None:
    execution = executions[name]
    assert outcome_of(execution) == ROWS[name][3], execution
    assert execution.passed or execution.cause in (Cause.CARRY, Cause.TEST), execution


@pytest.mark.long
def test_no_right_program_is_wrong_where_it_is_its_tasks_reference() -> None:
    jobs = [
        Job(task(entry, test, reference=program), f"{program}\n# a copy")
        for entry, program, test, _ in ROWS.values()
    ]
    for name, execution in zip(ROWS, judge_all(jobs, LIMITS), strict=True):
        assert execution.passed or execution.verdict is Verdict.UNJUDGED, (name, execution)


def test_there_are_rich_programs_enough() -> None:
    assert len(ROWS) >= 150
