"""SWE-bench, and the sets that have its columns: issues of projects, and their fixes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.registry import one_line
from assay.tasks import is_file, task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of, tests
from assay.tasks.rows import PublicSet, Row
from assay.types import Task

SUBSETS = {"full": "", "verified": "_Verified", "lite": "_Lite"}
SWE_BENCH = PublicSet(
    "swe_bench", "swe/swe_bench{}.jsonl", "princeton-nlp/SWE-bench{}", splits=SUBSETS, part="test"
)
SWE_GYM = PublicSet("swe_gym", "swe/swe_gym.jsonl", "SWE-Gym/SWE-Gym")
SWE_REBENCH = PublicSet("swe_rebench", "swe/swe_rebench.jsonl", "nebius/SWE-rebench-V2")
FILES = {"patch": "gold.patch", "test_patch": "test.patch",
         "problem_statement": "problem_statement.md"}  # fmt: skip
"""Columns that SWE-bench 5 keeps in files of their own."""


@task_set
def swe_bench(split: str = "verified") -> Iterator[Task]:
    """SWE-bench (arXiv:2310.06770): issues of Python projects; rows, or version 5's folder."""
    is_folder = Path(split).is_dir() and not is_file(split)
    rows = folder_rows(Path(split)) if is_folder else SWE_BENCH.rows(split)
    image = "swebench/sweb.eval.x86_64.{}_1776_{}:latest"
    return tasks_of("swe_bench", rows, partial(read, image=image))


@task_set
def swe_gym(split: str = "all") -> Iterator[Task]:
    """SWE-Gym (arXiv:2412.21139): issues of Python projects, for training."""
    return tasks_of("swe_gym", SWE_GYM.rows(split), read)


@task_set
def swe_rebench(split: str = "all") -> Iterator[Task]:
    """SWE-rebench V2: issues in 20 languages, of which those whose tests pytest runs are judged."""
    return tasks_of("swe_rebench", SWE_REBENCH.rows(split), read)


def read(row: Row, image: str = "xingyaoww/sweb.eval.x86_64.{}_s_{}:latest") -> PublicRepository:
    """A row, or one of NeMo Gym's with the row as JSON in its metadata. image: the name of its
    image where the row has none. Raises DataError, for a row of SWE-smith too.
    """
    if "responses_create_params" in row.fields and "patch" not in row.fields:
        metadata = row.table("responses_create_params").table("metadata")
        try:
            row = Row(dict(json.loads(metadata.text("instance_dict"))), row.where)
        except (ValueError, TypeError, RecursionError) as error:
            raise row.wrong(f"'instance_dict' is no JSON object ({error})") from None
    if str(row.fields.get("repo", "")).startswith("swesmith/"):
        raise row.wrong("a row of SWE-smith, whose patch makes the bug; read it as swe_smith")
    name = row.text("instance_id")
    owner, _, rest = name.partition("__")
    own_image = row.fields.get("image_name") or row.fields.get("image")
    return PublicRepository(
        name, row.text("problem_statement"), row.text("patch"),
        tests(row, "FAIL_TO_PASS"), tests(row, "PASS_TO_PASS"),
        image=str(own_image or image.format(owner, rest)),
        test_patch=row.text("test_patch", default=""),
        language=str(row.fields.get("language") or "python"),
    )  # fmt: skip


def folder_rows(folder: Path) -> Iterator[Row]:
    """The rows of SWE-bench 5: a folder for each, with task.yaml. Raises DataError."""
    import yaml  # type: ignore[import-untyped]

    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    for file in sorted(root.glob("*/task.yaml")):
        home = file.parent
        try:
            fields: dict[str, Any] = dict(yaml.safe_load(file.read_text()))
            fields |= {name: (home / path).read_text() for name, path in FILES.items()}
            fields |= dict(json.loads((home / "tests.json").read_text()))
        except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise DataError(f"{file}: not a task of SWE-bench 5 ({one_line(error)})") from None
        yield Row({"instance_id": home.name, **fields}, f"{file}, task {home.name}")
