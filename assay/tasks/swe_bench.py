"""SWE-bench, and the sets that have its columns: issues of projects, and their fixes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.judge.patches import PatchError, parse, reverse, write
from assay.registry import one_line
from assay.task_specs import ROWS
from assay.tasks import task_set
from assay.tasks.public_repositories import PublicRepository, tasks_of
from assay.tasks.repository import ids
from assay.tasks.rows import LeftOutError, PublicSet, Row
from assay.types import Task

SUBSETS = {"full": "", "verified": "_Verified", "lite": "_Lite"}
SWE_BENCH = PublicSet(
    "swe_bench", "swe/swe_bench{}.jsonl", "princeton-nlp/SWE-bench{}", splits=SUBSETS, part="test"
)
SWE_GYM = PublicSet("swe_gym", "swe/swe_gym.jsonl", "SWE-Gym/SWE-Gym")
SWE_REBENCH = PublicSet("swe_rebench", "swe/swe_rebench.jsonl", "nebius/SWE-rebench-V2")
SWE_SMITH = PublicSet("swe_smith", "swe/swe_smith.jsonl", "SWE-bench/SWE-smith")
SWERL_GEN = PublicSet("swerl_gen", "nemo_gym/swerl_gen/example.jsonl.gz", "NVIDIA-NeMo/Gym")
SMITH = "swesmith/"
"""What SWE-smith's `repo` begins with."""
FILES = {"patch": "gold.patch", "test_patch": "test.patch",
         "problem_statement": "problem_statement.md"}  # fmt: skip
"""Columns that SWE-bench 5 keeps in files of their own."""
IMAGES = ("image_name", "image", "docker_image", "dockerhub_tag")
"""Columns with the name of a row's image: of V2 of SWE-rebench, SWE-bench 5, V1, SWE-bench Pro."""


@task_set
def swe_bench(split: str = "verified") -> Iterator[Task]:
    """SWE-bench (arXiv:2310.06770): issues of Python projects; rows, or version 5's folder."""
    is_folder = Path(split).is_dir() and not split.endswith(ROWS)
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
    return tasks_of("swe_rebench", SWE_REBENCH.rows(split), read_named)


@task_set
def swe_smith(split: str = "all") -> Iterator[Task]:
    """SWE-smith (arXiv:2504.21798): bugs that were made; the fix is a row's `patch`, reversed."""
    return tasks_of("swe_smith", SWE_SMITH.rows(split), read_bug)


@task_set
def swerl_gen(split: str = "all") -> Iterator[Task]:
    """NeMo Gym's swerl_gen, after SWE-RL (arXiv:2502.18449): the prompt shows the files, a reply is
    SEARCH/REPLACE blocks.
    """
    return tasks_of("swerl_gen", SWERL_GEN.rows(split), read_prompt)


def read(row: Row, image: str = "xingyaoww/sweb.eval.x86_64.{}_s_{}:latest") -> PublicRepository:
    """A row. image: the name of its image where it has none. Raises DataError, for a row of
    SWE-smith too.
    """
    if str(row.fields.get("repo", "")).startswith(SMITH):
        raise row.wrong("a row of SWE-smith, whose patch makes the bug; read it as swe_smith")
    if "expected_output_json" in row.fields:
        raise row.wrong("a row of R2E-Gym; read it as r2e_gym")
    if "instance" in row.fields:
        raise row.wrong("a row of NeMo Gym's swerl_gen; read it as swerl_gen")
    owner, _, rest = row.text("instance_id").partition("__")
    return columns(row, row.text("problem_statement"), image.format(owner, rest))


def read_named(row: Row) -> PublicRepository:
    """A row of SWE-rebench, whose images have the repository in a folder of its name."""
    return replace(read(row), folder=f"/{row.text('repo').rpartition('/')[2]}")


def read_bug(row: Row) -> PublicRepository:
    """A row of SWE-smith. Raises DataError for one of another set, whose `patch` is the fix."""
    if not row.text("repo").startswith(SMITH):
        raise row.wrong("'repo' is none of SWE-smith's (swesmith/...): here `patch` makes the bug")
    public = columns(row, row.text("problem_statement", default=""), row.text("image_name"))
    try:
        fix = write(reverse(parse(public.fix)))
        return replace(public, fix=fix, bug=public.fix, test_patch="")
    except PatchError as error:
        raise row.wrong(f"'patch': {error}") from None


def read_prompt(row: Row) -> PublicRepository:
    """A row of swerl_gen, with the columns in `instance`, and the prompt. Raises LeftOutError for
    one that asks for tests.
    """
    if (mode := row.text("mode", default="eval")) != "eval":
        raise LeftOutError(f"that ask for something else ({mode})")
    prompt = row.table("responses_create_params").messages("input")
    image = row.table("metadata").text("image")
    return replace(read(Row(row.table("instance").fields, row.where)), messages=prompt, image=image)


def columns(row: Row, statement: str, image: str) -> PublicRepository:
    """What SWE-bench's columns say. Raises DataError; LeftOutError for a row with binary files."""
    assets = row.table("image_assets")
    if assets.items("patch") or assets.items("test_patch"):
        raise LeftOutError("with binary files that no diff holds (image_assets, test_assets)")
    return PublicRepository(
        row.text("instance_id"), statement, row.diff("patch"), ids(row, "fail_to_pass"),
        ids(row, "pass_to_pass"), image=first(row, IMAGES) or image,
        test_patch=row.diff("test_patch", default=""),
        language=first(row, ("language", "repo_language")) or "python",
    )  # fmt: skip


def first(row: Row, names: Iterable[str]) -> str:
    """The first of these fields that has a value."""
    return next((str(row.fields[name]) for name in names if row.fields.get(name)), "")


def folder_rows(folder: Path) -> Iterator[Row]:
    """The rows of SWE-bench 5: a folder for each, with task.yaml. Raises DataError."""
    import yaml  # type: ignore[import-untyped]

    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    for file in sorted(root.glob("*/task.yaml")):
        home = file.parent
        try:
            fields: dict[Any, Any] = dict(yaml.safe_load(file.read_text()))
            fields |= {name: (home / path).read_bytes().decode() for name, path in FILES.items()}
            fields |= dict(json.loads((home / "tests.json").read_text()))
            if assets := list((home / "test_assets").glob("*")):
                fields["image_assets"] = {"test_patch": assets}
        except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise DataError(f"{file}: not a task of SWE-bench 5 ({one_line(error)})") from None
        texts = {str(name): value for name, value in fields.items()}
        yield Row({"instance_id": home.name, **texts}, f"{file}, task {home.name}")
