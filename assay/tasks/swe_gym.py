"""SWE-Gym: issues of Python projects for training (arXiv:2412.21139)."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, of_swe_bench, public_set, tasks_of
from assay.tasks.rows import Row
from assay.types import Task

SWE_GYM = public_set("swe_gym", "swe/swe_gym.jsonl", "SWE-Gym/SWE-Gym", ("train",))


@task_set
def swe_gym(split: str = "train") -> Iterator[Task]:
    """SWE-Gym (arXiv:2412.21139): issues of Python projects, for training."""
    return tasks_of("swe_gym", SWE_GYM.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row in SWE-bench's columns."""
    name = str(row.fields.get("instance_id", "")).replace("__", "_s_")
    return of_swe_bench(row, f"xingyaoww/sweb.eval.x86_64.{name}:latest")
