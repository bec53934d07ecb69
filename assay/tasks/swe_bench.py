"""SWE-bench and its subsets: issues of Python projects (arXiv:2310.06770)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.registry import one_line
from assay.tasks import is_file, task_set
from assay.tasks.public_repositories import PublicRepository, of_swe_bench, public_set, tasks_of
from assay.tasks.rows import Row
from assay.types import Task

IMAGE = "swebench/sweb.eval.x86_64.{id}:latest"
FILES = {"patch": "gold.patch", "test_patch": "test.patch",
         "problem_statement": "problem_statement.md"}  # fmt: skip
"""Columns that SWE-bench 5 keeps in files of their own."""


@task_set
def swe_bench(split: str = "test") -> Iterator[Task]:
    """SWE-bench (arXiv:2310.06770): issues of Python projects; as rows, or a folder of tasks."""
    return repositories("swe_bench", "princeton-nlp/SWE-bench", split)


def repositories(name: str, hub: str, split: str) -> Iterator[Task]:
    """The tasks of a subset."""
    public = public_set(name, f"swe/{name}.jsonl", hub, ("test", "dev"))
    is_folder = Path(split).is_dir() and not is_file(split)
    return tasks_of(name, folder_rows(Path(split)) if is_folder else public.rows(split), read)


def read(row: Row) -> PublicRepository:
    """A row of the set's, or one of NeMo Gym's with the row as JSON in its metadata."""
    if "responses_create_params" in row.fields and "patch" not in row.fields:
        metadata = row.table("responses_create_params").table("metadata")
        try:
            row = Row(dict(json.loads(metadata.text("instance_dict"))), row.where)
        except (ValueError, TypeError, RecursionError) as error:
            raise row.wrong(f"'instance_dict' is no JSON object ({error})") from None
    name = str(row.fields.get("instance_id", "")).replace("__", "_1776_")
    return of_swe_bench(row, IMAGE.format(id=name))


def folder_rows(folder: Path) -> Iterator[Row]:
    """The rows of SWE-bench 5: a folder for each, with task.yaml. Raises DataError."""
    import yaml  # type: ignore[import-untyped]

    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    for file in sorted(root.glob("*/task.yaml")):
        home, where = file.parent, str(file)
        try:
            fields: dict[str, Any] = dict(yaml.safe_load(file.read_text()))
            fields |= {name: (home / path).read_text() for name, path in FILES.items()}
            fields |= dict(json.loads((home / "tests.json").read_text()))
        except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise DataError(f"{where}: not a task of SWE-bench 5 ({one_line(error)})") from None
        yield Row({"instance_id": home.name, **fields}, f"{where}, task {home.name}")
