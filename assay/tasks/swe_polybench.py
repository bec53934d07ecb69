"""SWE-PolyBench (arXiv:2504.08703): issues of projects in Java, JavaScript, TypeScript and Python,
of which those in Python are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.rows import PublicSet, Row
from assay.tasks.swe_bench import columns
from assay.types import Task

SWE_POLYBENCH = PublicSet("swe_polybench", "swe/swe_polybench.jsonl", "AmazonScience/SWE-PolyBench")


@task_set
def swe_polybench(split: str = "all") -> Iterator[Task]:
    """SWE-PolyBench (arXiv:2504.08703): issues in four languages, of which Python is judged."""
    return tasks_of("swe_polybench", SWE_POLYBENCH.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with SWE-bench's columns, but for `F2P` and `P2P`. Its image is what its own Dockerfile
    builds. Raises DataError.
    """
    tests = {"FAIL_TO_PASS": row.fields.get("F2P"), "PASS_TO_PASS": row.fields.get("P2P")}
    image = f"polybench_{row.text('language').lower()}_{row.text('instance_id').lower()}"
    fields = Row({**row.fields, **tests}, row.where)
    return replace(columns(fields, row.text("problem_statement"), image), folder="/testbed")
