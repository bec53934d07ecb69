"""KodCode: synthetic problems with a solution and pytest functions (arXiv:2503.02951)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.judge.kinds.test_functions import collect
from assay.tasks import task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Task, TestFunctions

SPLITS = ("train", "use_with_caution")
KODCODE = PublicSet("kodcode", "kodcode/{}.jsonl", "KodCode/KodCode-V1", None, SPLITS, "{}")
IMPORTED = re.compile(r"^[ \t]*from solution import \(?\s*(\w+)", re.MULTILINE)


@task_set
def kodcode(split: str = "train") -> Iterator[Task]:
    """KodCode (arXiv:2503.02951): functions and classes, each test function a check."""
    return usable_tasks(KODCODE.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `question`, `solution`, `test` and, for the name of the function, `test_info`.

    Raises LeftOutError for a row whose tests cannot be run, DataError for a malformed one.
    """
    infos = row.tables("test_info")
    imported = IMPORTED.search(row.text("test"))
    name = infos[0].text("function_name", default="") if infos else ""
    return Task(
        id=str(row.fields.get("question_id") or f"KodCode/{row.place}"),
        prompt=row.text("question"),
        checks=(test_functions(row.text("test")),),
        entry_point=name or (imported[1] if imported else ""),
        reference=row.text("solution", default="") or None,
    )


def test_functions(module: str) -> TestFunctions:
    """The tests of a module. Raises LeftOutError where they cannot be run."""
    try:
        collect(module)
    except ValueError as error:
        raise LeftOutError(f"with tests that cannot be run ({error})") from None
    return TestFunctions(module)
