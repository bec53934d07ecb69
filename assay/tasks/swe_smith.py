"""SWE-smith: bugs made in Python projects (arXiv:2504.21798). A row's `patch` makes the bug."""

from __future__ import annotations

from collections.abc import Iterator

from assay.judge.patches import PatchError, parse, reverse, write
from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of, tests
from assay.tasks.rows import PublicSet, Row
from assay.types import Task

SWE_SMITH = PublicSet("swe_smith", "swe/swe_smith.jsonl", "SWE-bench/SWE-smith")


@task_set
def swe_smith(split: str = "all") -> Iterator[Task]:
    """SWE-smith (arXiv:2504.21798): bugs that were made; the fix is a row's `patch`, reversed."""
    return tasks_of("swe_smith", SWE_SMITH.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with `patch`, `image_name` and lists of tests. Raises DataError for a row of another
    set, whose `patch` is the fix.
    """
    if not row.text("repo").startswith("swesmith/"):
        raise row.wrong("'repo' is none of SWE-smith's (swesmith/...): here `patch` makes the bug")
    try:
        fix = write(reverse(parse(row.text("patch"))))
    except PatchError as error:
        raise row.wrong(f"'patch': {error}") from None
    return PublicRepository(
        row.text("instance_id"), row.text("problem_statement", default=""), fix,
        tests(row, "FAIL_TO_PASS"), tests(row, "PASS_TO_PASS"), image=row.text("image_name"),
    )  # fmt: skip
