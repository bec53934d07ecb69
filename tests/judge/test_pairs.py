"""Forty right programs pass without a reference, and with one bug they fail.

pairs.txt: name | `forgeable` where it is; the program; `@ right => wrong`; `---`; the data set's
classes if any with `===`; the test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.types import Execution
from tests.judge.jobs import read_pairs, task

ROWS = read_pairs(Path(__file__).with_name("pairs.txt"))


@pytest.fixture(scope="module")
def executions() -> dict[str, tuple[Execution, Execution]]:
    jobs = []
    for _, right, wrong, tests in ROWS.values():
        setup, _, test = tests.rpartition("===\n")
        entry = re.findall(r"^def (\w+)", right, re.MULTILINE)[-1]
        jobs += [Job(task(entry, test, setup=setup), program) for program in (right, wrong)]
    done = judge_all(jobs, Limits(cpu_seconds=0.5, wall_seconds=2))
    return dict(zip(ROWS, zip(done[::2], done[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_a_right_program_passes_and_one_bug_fails(
    name: str, executions: dict[str, tuple[Execution, Execution]]
) -> None:
    right, wrong = executions[name]
    assert (str(right.verdict), right.forgeable) == ("pass", bool(ROWS[name][0].strip())), right
    assert str(wrong.verdict) in ("wrong", "error", "timeout"), wrong


def test_there_are_forty() -> None:
    assert len(ROWS) == 40
