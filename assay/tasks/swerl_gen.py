"""NeMo Gym's swerl_gen: patches of repositories in one reply, after SWE-RL (arXiv:2502.18449)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import swe_bench, task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.rows import LeftOutError, PublicSet, Row
from assay.types import Task

SWERL_GEN = PublicSet("swerl_gen", "nemo_gym/swerl_gen/example.jsonl.gz", "NVIDIA-NeMo/Gym")


@task_set
def swerl_gen(split: str = "all") -> Iterator[Task]:
    """NeMo Gym's swerl_gen: the prompt shows the files, a reply is SEARCH/REPLACE blocks."""
    return tasks_of("swerl_gen", SWERL_GEN.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with `instance`, in SWE-bench's columns, and the prompt. Raises LeftOutError for one
    that asks for tests.
    """
    if (mode := row.text("mode", default="eval")) != "eval":
        raise LeftOutError(f"that ask for something else ({mode})")
    fields = row.table("instance").fields
    public = swe_bench.read(Row(fields, row.where), row.table("metadata").text("image"))
    prompt = row.table("responses_create_params").messages("input")
    return replace(public, messages=prompt)
