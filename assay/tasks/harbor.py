"""Folders of Harbor's tasks: task.toml and instruction.md beside an environment, tests and a
solution. Harbor judges by a script in the task's image; those that are a repository with the ids of
its tests are judged here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.repository import ids
from assay.tasks.rows import Row
from assay.types import Task

FETCHES = ("curl ", "wget ", "apt-get ", "pip install", "uvx ")
"""What a test script that needs a network calls."""


@task_set
def harbor(split: str) -> Iterator[Task]:
    """A folder of Harbor's tasks, or one of them: `harbor:FOLDER`."""
    folder = Path(split)
    files = [*folder.glob("task.toml"), *sorted(folder.glob("*/task.toml"))]
    if not files:
        raise DataError(f"{folder} holds no task.toml, and no folder with one; give Harbor's tasks")
    return tasks_of("harbor", map(_row, files), read)


def _row(file: Path) -> Row:
    """A task's settings, with its texts. Raises DataError."""
    try:
        fields: dict[str, Any] = tomllib.loads(file.read_text())
        fields["instruction"] = file.with_name("instruction.md").read_text()
        script = file.parent / "tests" / "test.sh"
        fields["script"] = script.read_text() if script.is_file() else ""
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: not a task of Harbor's: {error}") from None
    return Row({"id": file.parent.resolve().name, **fields}, f"{file}, task")


def read(row: Row) -> PublicRepository:
    """A task, with the ids of tests where a table of its metadata has them."""
    name, fetches = row.text("id"), any(word in row.text("script") for word in FETCHES)
    dockerfile = f"that environment/Dockerfile builds{', a network' if fetches else ''}"
    image = row.table("environment").text("docker_image", default=dockerfile)
    tables = [row.table("metadata")]
    while tables and "fail_to_pass" not in tables[-1].fields:
        table = tables.pop()
        tables[:0] = [
            table.table(key) for key, value in table.fields.items() if isinstance(value, dict)
        ]
    metadata = tables[-1] if tables else Row({}, row.where)
    return PublicRepository(
        name, row.text("instruction"), "", ids(metadata, "fail_to_pass"),
        ids(metadata, "pass_to_pass"), image=image,
    )  # fmt: skip
