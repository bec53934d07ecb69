"""MultiPL-E: MBPP's tasks as stubs to complete, in Python (arXiv:2208.08227)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.python_source import parsed, without
from assay.tasks.rows import LeftOutError, PublicSet, Row, kept
from assay.types import Check, Task

MULTIPL_E = PublicSet(
    "multipl_e_mbpp", "multipl_e/mbpp-py-reworded.json", "nuprl/MultiPL-E", "mbpp-py", ("py",)
)
CALLED = re.compile(r"^\s*check\((\w+)\)", re.MULTILINE)


@task_set
def multipl_e_mbpp(split: str = "py") -> Iterator[Task]:
    """MultiPL-E's MBPP (arXiv:2208.08227): a stub with types and docstring, and a check."""
    return kept(MULTIPL_E.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `name`, `prompt`, `tests` and `stop_tokens`.

    Raises LeftOutError for a row whose tests call nothing, DataError for a malformed one.
    """
    row.require_python()
    prompt, tests = row.text("prompt"), row.text("tests")
    called = CALLED.search(tests)
    if called is None:
        raise LeftOutError("without tests")
    return Task(
        id=row.text("name"),
        prompt=prompt,
        checks=(Check(tests),),
        entry_point=called[1],
        stub=prompt,
        setup=without(prompt, parsed(prompt, row, "prompt"), called[1]),
        stop=row.texts("stop_tokens"),
    )
