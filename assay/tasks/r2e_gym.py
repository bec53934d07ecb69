"""R2E-Gym: commits of Python projects (arXiv:2504.07164); all tests that pass after one decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from assay.judge.patches import PatchError, parse, write
from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.rows import LeftOutError, PublicSet, Row
from assay.types import Task

R2E_GYM = PublicSet("r2e_gym", "swe/r2e_gym.jsonl", "R2E-Gym/R2E-Gym-Subset")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SECONDS = 300.0


@task_set
def r2e_gym(split: str = "all") -> Iterator[Task]:
    """R2E-Gym (arXiv:2504.07164): commits of Python projects, with the tests that they bring."""
    return tasks_of("r2e_gym", R2E_GYM.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with `expected_output_json`, the status of each test by its bare name. The tests stand
    in the file that the commit changes; rows whose commit changes several are left out.
    """
    try:
        statuses = dict(json.loads(row.text("expected_output_json")))
        changes = parse(row.text("patch"))
    except (ValueError, TypeError, RecursionError) as error:
        why = "'patch'" if isinstance(error, PatchError) else "'expected_output_json'"
        raise row.wrong(f"{why} cannot be read: {error}") from None
    is_test = [
        re.search(r"(^|/)tests?/|(^|/)test_", f"{one.new or one.old}", re.I) for one in changes
    ]
    files = [one.new for one, test in zip(changes, is_test, strict=True) if test and one.new]
    if len(files) != 1:
        raise LeftOutError(f"whose tests stand in {len(files)} files")
    names = [COLOUR.sub("", name) for name, status in statuses.items() if status == "PASSED"]
    parts = [
        write([one for one, test in zip(changes, is_test, strict=True) if bool(test) is wanted])
        for wanted in (False, True)
    ]
    name = str(
        row.fields.get("instance_id") or f"{row.text('repo_name')}__{row.text('commit_hash')}"
    )
    return PublicRepository(
        name, row.text("problem_statement"), parts[0],
        tuple(f"{files[0]}::{test.replace('.', '::')}" for test in names), (),
        image=row.text("docker_image"), test_patch=parts[1], seconds=SECONDS,
    )  # fmt: skip
