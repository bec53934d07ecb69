"""R2E-Gym: commits of Python projects (arXiv:2504.07164); all tests that pass after one decide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.judge.patches import PatchError, parse, write
from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.rows import LeftOutError, PublicSet, Row
from assay.types import Task

R2E_GYM = PublicSet("r2e_gym", "swe/r2e_gym.jsonl", "R2E-Gym/R2E-Gym-Subset")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TEST = re.compile(r"(^|/)tests?/|(^|/)test_", re.IGNORECASE)
SIGNS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}
"""What a line of a diff begins with, by its type in `parsed_commit_content`."""
SECONDS = 300.0


@task_set
def r2e_gym(split: str = "all") -> Iterator[Task]:
    """R2E-Gym (arXiv:2504.07164): commits of Python projects, with the tests that they bring."""
    return tasks_of("r2e_gym", R2E_GYM.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row with `expected_output_json`, the status of each test by its bare name. The tests stand
    in the file that the commit changes; rows whose commit changes several are left out.
    """
    diff = row.diff("patch", default="") or patch_of(row.table("parsed_commit_content"))
    try:
        changes = parse(diff)
    except PatchError as error:
        raise row.wrong(f"'patch' cannot be read: {error}") from None
    parts = [
        [file for file in changes if bool(TEST.search(f"{file.new or file.old}")) is tests]
        for tests in (False, True)
    ]
    files = [file.new for file in parts[1] if file.new]
    if len(files) != 1:
        raise LeftOutError(f"whose tests stand in {len(files)} files")
    statuses = row.table("expected_output_json").fields
    names = [COLOUR.sub("", f"{name}") for name in statuses if statuses[name] == "PASSED"]
    name = row.text("instance_id", default="")
    name = name or f"{row.text('repo_name')}__{row.text('commit_hash')}"
    return PublicRepository(
        name, row.text("problem_statement"), write(parts[0]),
        tuple(f"{files[0]}::{test.replace('.', '::')}" for test in names), (),
        image=row.text("docker_image"), test_patch=write(parts[1]), seconds=SECONDS,
        roots=("/testbed/.venv",),
    )  # fmt: skip


def patch_of(commit: Row) -> str:
    """The diff of a commit that a row has in parts, as R2E-Gym publishes it. Raises DataError."""
    texts = list[str]()
    for file in commit.tables("file_diffs"):
        for number, hunk in enumerate(file.tables("hunks")):
            if number == 0:
                texts += [f"{sign * 3} {file.table(name).text('path', default='/dev/null')}\n"
                          for sign, name in (("-", "minus_file"), ("+", "plus_file"))]  # fmt: skip
            ranges = [hunk.table("descriptor").table(name).fields for name in
                      ("old_range", "new_range")]  # fmt: skip
            old, new = (f"{span.get('start')},{span.get('length')}" for span in ranges)
            texts.append(f"@@ -{old} +{new} @@\n")
            for line in hunk.table("line_group").tables("all_lines"):
                texts.append(f"{SIGNS.get(line.text('type'), '')}{line.diff('content')}\n")
    return "".join(texts)
