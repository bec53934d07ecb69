"""No object of a program passes a test that its behaviour did not earn, without being forgeable.

forged_objects.txt holds, after each name and what may come of it (verdicts, `forgeable` where
it may pass so), the program, `---`, the setup if any with `===`, and the test.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.judge.prepared_task import PreparedTask
from assay.sandbox.limits import Limits
from assay.types import AnyCheck, Check, Execution, Task, Verdict
from tests.judge.jobs import NO_TABLE, as_program, task

TEXT = Path(__file__).with_name("forged_objects.txt").read_text()


def read_rows() -> dict[str, tuple[Job, str]]:
    found = {}
    for block in re.split(r"^##### ", TEXT, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        name, _, outcomes = head.partition(" | ")
        program, _, test = body.partition("---\n")
        setup, _, test = test.rpartition("===\n")
        defined = re.findall(r"^(?:async def|def|class) (\w+)", program, re.MULTILINE)
        entry = next(
            it for it in ["f", *defined] if it in defined and re.search(rf"\b{it}\b", test)
        )
        if find_spec("numpy") or "numpy" not in body:
            found[name] = Job(task(entry, as_program(test), setup=setup), program), outcomes
    return found


def is_table(of: Task) -> bool:
    return not PreparedTask(of, Limits(), stop_early=True).first_features.objects


def as_it_was(check: AnyCheck) -> Check:
    return Check(check.source.removeprefix(NO_TABLE)) if isinstance(check, Check) else Check("")


ROWS = read_rows()
TABLES = {
    name: Job(plain, job.program)
    for name, (job, _) in ROWS.items()
    if is_table(plain := replace(job.task, checks=tuple(map(as_it_was, job.task.checks))))
}
"""Those tests that are tables, as such."""


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    done = judge_all([job for job, _ in ROWS.values()])
    return dict(zip(ROWS, done, strict=True))


@pytest.fixture(scope="module")
def by_tables() -> dict[str, Execution]:
    return dict(zip(TABLES, judge_all([*TABLES.values()]), strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_takes_nothing_of_a_forged_object_but_data(
    name: str, by_tables: dict[str, Execution]
) -> None:
    execution = by_tables[name]
    assert not execution.forgeable
    assert execution.verdict in (Verdict.WRONG, Verdict.ERROR, Verdict.FORBIDDEN), execution


@pytest.mark.parametrize("name", ROWS)
def test_a_forged_object_never_passes_unseen(name: str, executions: dict[str, Execution]) -> None:
    execution, outcomes = executions[name], ROWS[name][1].split()
    if execution.passed:
        assert execution.forgeable
        assert "forgeable" in outcomes, execution
    else:
        assert str(execution.verdict) in outcomes, execution


def test_there_are_forgeries_enough() -> None:
    assert len(ROWS) >= 40
    assert len(TABLES) >= 20
