"""TACO: competitive programming and functions with topics and limits (arXiv:2312.14852)."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.cases import question_task
from assay.tasks.rows import PublicSet, Row, usable_tasks
from assay.types import Task

TACO = PublicSet("taco", "taco/taco_verified.json", "likaixin/TACO-verified")


@task_set
def taco(split: str = "all") -> Iterator[Task]:
    """TACO (arXiv:2312.14852): the rows of BAAI/TACO, or those whose solutions were verified."""
    return usable_tasks(TACO.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `question`, `input_output`, `starter_code` and `solutions`.

    Raises LeftOutError for a row without usable tests, DataError for a malformed one.
    """
    return question_task(f"TACO/{row.fields.get('id', row.place)}", row)
