"""Twenty class tasks without a reference: the right program passes, forgeable or not; the
wrong one, which differs in one place, is wrong.

class_tasks.txt: name | `forgeable` where it is; the program; `@ right => wrong`; `---`; the test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.judge import Job, judge_all
from assay.types import Execution
from tests.judge.jobs import read_pairs, task

ROWS = read_pairs(Path(__file__).with_name("class_tasks.txt"))


@pytest.fixture(scope="module")
def executions() -> dict[str, tuple[Execution, Execution]]:
    jobs = []
    for name, (_, right, wrong, test) in ROWS.items():
        entry = right.rpartition("\nclass ")[2] if "\nclass " in right else right[len("class ") :]
        checked = task(entry.partition("(")[0].partition(":")[0], test)
        jobs += [Job(checked, f"{program}\n# {name}") for program in (right, wrong)]
    done = judge_all(jobs)
    return dict(zip(ROWS, zip(done[::2], done[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_a_right_class_passes_without_a_reference_and_a_wrong_one_is_wrong(
    name: str, executions: dict[str, tuple[Execution, Execution]]
) -> None:
    right, wrong = executions[name]
    assert (str(right.verdict), right.forgeable) == ("pass", bool(ROWS[name][0].strip())), right
    assert str(wrong.verdict) == "wrong", wrong


def test_there_are_twenty() -> None:
    assert len(ROWS) == 20
