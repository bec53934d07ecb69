"""SWE-rebench V2: 32,079 tasks of projects in 20 languages, those of Python among them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from assay.tasks import task_set
from assay.tasks.public_repositories import of_swe_bench, public_set, tasks_of
from assay.types import Task

SWE_REBENCH = public_set(
    "swe_rebench", "swe/swe_rebench.jsonl", "nebius/SWE-rebench-V2", ("train",)
)


@task_set
def swe_rebench(split: str = "train") -> Iterator[Task]:
    """SWE-rebench V2: issues of projects, of which those whose tests pytest runs are judged."""
    return tasks_of("swe_rebench", SWE_REBENCH.rows(split), partial(of_swe_bench, image="{id}"))
