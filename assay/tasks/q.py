"""q problems made of LeetCode's, each with q code to run and the text that it must print
(arXiv:2508.06813).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import PrintTest, Task

Q = PublicSet(
    "q", "q/{}.jsonl", "morganstanley/sft-python-q-problems", splits=("train", "test"), part="{}"
)
FUNCTION = "solve"
EMPTY = '""'
"""How q shows an empty text, which rows may hold as no output at all."""


@task_set
def q(split: str = "train") -> Iterator[Task]:
    """Problems in q made of LeetCode's (arXiv:2508.06813). Splits: train, test."""
    return usable_tasks(Q.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `description` and `tests` of `test_code` and `expected_output`; or a published
    one, with `problem_description`, `q_solution` and `test_cases`.

    Raises LeftOutError for a row without tests, DataError for a malformed one.
    """
    published = "test_cases" in row.fields
    names = ("test_cases", "q_test_code", "q_expected_output")
    tests, code, output = names if published else ("tests", "test_code", "expected_output")
    checks = tuple(
        PrintTest(test.text(code), test.text(output).strip() or EMPTY) for test in row.tables(tests)
    )
    if not checks:
        raise LeftOutError("without tests")
    calls = all(re.search(rf"\b{FUNCTION}\b", check.code) for check in checks)
    number = row.fields.get("problem_id" if published else "id")
    return Task(
        id=f"q/{row.place if number is None else number}",
        prompt=row.text("problem_description" if published else "description"),
        checks=checks,
        entry_point=FUNCTION if calls else "",
        language="q",
        reference=row.text("q_solution" if published else "reference", default="") or None,
    )
