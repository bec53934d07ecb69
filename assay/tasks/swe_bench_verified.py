"""SWE-bench Verified: the 500 tasks of SWE-bench that people have checked."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.swe_bench import repositories
from assay.types import Task


@task_set
def swe_bench_verified(split: str = "test") -> Iterator[Task]:
    """SWE-bench Verified: the 500 tasks of SWE-bench that people have checked."""
    return repositories("swe_bench_verified", "princeton-nlp/SWE-bench_Verified", split)
