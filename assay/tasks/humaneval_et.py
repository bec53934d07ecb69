"""HumanEval-ET and MBPP-ET: the same tasks with far more asserts (arXiv:2301.09043)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import humaneval, mbpp, task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Check, Task

HUMANEVAL = PublicSet(
    "humaneval_et", "humaneval_et/HumanEval_ET.jsonl", "dz1/CodeScore-HumanEval-ET"
)
MBPP = PublicSet("mbpp_et", "humaneval_et/MBPP_ET.jsonl", "dz1/CodeScore-MBPP-ET")


@task_set
def humaneval_et(split: str = "all") -> Iterator[Task]:
    """HumanEval-ET (arXiv:2301.09043): HumanEval's tasks, each assert of many a check."""
    return usable_tasks(HUMANEVAL.rows(split), humaneval_task_of)


@task_set
def mbpp_et(split: str = "all") -> Iterator[Task]:
    """MBPP-ET (arXiv:2301.09043): MBPP's tasks with more asserts; the prompt shows MBPP's own."""
    return usable_tasks(MBPP.rows(split), mbpp_task_of)


def humaneval_task_of(row: Row) -> Task:
    """A row of HumanEval with `test_case_list`, a list of asserts.

    Raises LeftOutError for a row without asserts, DataError for a malformed one.
    """
    task = humaneval.task_of(Row({**row.fields, "test": ""}, row.where))
    return replace(task, checks=_asserts(row))


def mbpp_task_of(row: Row) -> Task:
    """A row of MBPP with `test_case_list`, a list of asserts.

    Raises LeftOutError for a row without asserts, DataError for a malformed one.
    """
    return replace(mbpp.task_of(row), checks=_asserts(row))


def _asserts(row: Row) -> tuple[Check, ...]:
    visible, asserts = row.texts("test_list"), row.texts("test_case_list")
    if not asserts:
        raise LeftOutError("without tests")
    return tuple(Check(text, hidden=text not in visible) for text in asserts)
