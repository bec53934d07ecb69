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
from assay.types import Execution, Verdict
from tests.judge.jobs import task

TEXT = Path(__file__).with_name("forged_objects.txt").read_text()


def read_rows() -> dict[str, tuple[Job, str]]:
    found = {}
    for block in re.split(r"^##### ", TEXT, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        name, _, outcomes = head.partition(" | ")
        program, _, test = body.partition("---\n")
        setup, _, test = test.rpartition("===\n")
        defined = re.findall(r"^(?:async def |def |class )?(\w+)(?: =|\(|:)", program, re.MULTILINE)
        entry = next(
            it for it in ["f", *defined] if it in defined and re.search(rf"\b{it}\b", test)
        )
        if find_spec("numpy") or "numpy" not in body:
            found[name] = Job(task(entry, test, setup=setup), program), outcomes
    return found


ROWS = read_rows()


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    done = judge_all([job for job, _ in ROWS.values()])
    return dict(zip(ROWS, done, strict=True))


@pytest.fixture(scope="module")
def with_objects() -> dict[str, Execution]:
    jobs = [Job(replace(job.task, needs="objects"), job.program) for job, _ in ROWS.values()]
    return dict(zip(ROWS, judge_all(jobs), strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_a_forged_object_never_passes_unseen(name: str, with_objects: dict[str, Execution]) -> None:
    execution, outcomes = with_objects[name], ROWS[name][1].split()
    if execution.passed:
        assert execution.forgeable
        assert "forgeable" in outcomes, execution
    else:
        assert str(execution.verdict) in outcomes, execution


@pytest.mark.parametrize("name", ROWS)
def test_nor_where_the_test_has_data_first(name: str, executions: dict[str, Execution]) -> None:
    execution = executions[name]
    assert execution.forgeable or not execution.passed, execution
    assert execution.verdict is not Verdict.INFRA


def test_there_are_forgeries_enough() -> None:
    assert len(ROWS) >= 200
