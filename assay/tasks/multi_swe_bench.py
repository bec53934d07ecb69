"""Multi-SWE-bench and Multi-SWE-RL (arXiv:2504.02605): pull requests in seven languages. Rows whose
tests are no ids of pytest are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.repository import without_time
from assay.tasks.rows import PublicSet, Row
from assay.types import Task

MULTI_SWE_BENCH = PublicSet(
    "multi_swe_bench", "swe/multi_swe_bench.jsonl", "ByteDance-Seed/Multi-SWE-bench"
)
FIXED = ("f2p_tests", "s2p_tests", "n2p_tests")
"""Tests that pass after the fix, and fail, are skipped or are missing before."""
ENDINGS = {"py": "python", "java": "Java", "ts": "TypeScript", "js": "JavaScript", "go": "Go",
           "rs": "Rust", "c": "C", "cc": "C++", "cpp": "C++", "hpp": "C++"}  # fmt: skip


@task_set
def multi_swe_bench(split: str = "all") -> Iterator[Task]:
    """Multi-SWE-bench (arXiv:2504.02605): pull requests, of which pytest's are judged."""
    return tasks_of("multi_swe_bench", MULTI_SWE_BENCH.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with `org`, `repo`, `number`, `fix_patch`, `test_patch`, `resolved_issues` and the
    tests as the names of tables. Raises DataError.
    """
    organisation, repository = row.text("org"), row.text("repo")
    number, fix = row.answer("number"), row.diff("fix_patch")
    issues = row.tables("resolved_issues") or [row]
    texts = (issue.text(key, default="") for issue in issues for key in ("title", "body"))
    tests = [tuple(map(without_time, row.table(name).fields)) for name in (*FIXED, "p2p_tests")]
    endings = (line.rpartition(".")[2] for line in fix.split("\n") if line.startswith("+++ b/"))
    language = next((ENDINGS[ending] for ending in endings if ending in ENDINGS), "")
    return PublicRepository(
        row.text("instance_id", default="") or f"{organisation}__{repository}-{number}",
        "\n\n".join(filter(None, texts)), fix, sum(tests[:-1], ()), tests[-1],
        image=f"mswebench/{organisation}_m_{repository}:pr-{number}".lower(),
        test_patch=row.diff("test_patch", default=""), folder=f"/home/{repository}",
        language=row.text("language", default="") or language or "another language",
    )  # fmt: skip
