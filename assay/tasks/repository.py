"""A row of assay's own for a repository: a tree, the tests that a right change repairs, and it."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.judge.repository_tree import tree_of
from assay.tasks.rows import Row
from assay.types import RepositoryTests, Task

FIELDS = {"tree", "fail_to_pass", "pass_to_pass", "FAIL_TO_PASS", "PASS_TO_PASS", "test_files",
          "test_patch", "pytest_arguments", "environment", "roots", "seconds", "hidden",
          "bug", "image"}  # fmt: skip
TIME = re.compile(r"\s+[(\[]?\s*\d+(?:\.\d+)?\s*(?:ms|s|secs?|seconds?)\s*[)\]]?\s*\Z")
"""The time in the end of an id: `test_add (0.01s)`, `test_add [12 ms]`."""
PREFIXES = ("/opt/miniconda3/envs/testbed", "/usr/local")
"""Where images have their Python, if not in /usr."""


def task_of(row: Row, id: str) -> Task:
    """A row with `tree`, in which the diff `bug` is put if there is one, and `reference`, the right
    change. Paths are relative to the file of the rows; with `image`, absolute ones in it. Raises
    DataError.
    """
    home = Path(row.where.rpartition(", ")[0]).parent
    image = row.text("image", default="")
    image = str((home / image).resolve()) if image and (home / image).exists() else image
    tree = home / row.text("tree")
    roots = row.texts("roots") or (PREFIXES if image else ())
    if not image and not tree.exists():
        raise row.wrong(f"'tree' is {row.text('tree')!r}, but there is no {tree}")
    variables, seconds = row.table("environment").fields, row.fields.get("seconds", 600)
    if not all(isinstance(value, str) for value in variables.values()):
        raise row.wrong("'environment' must have texts as values")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise row.wrong(f"'seconds' is {seconds!r}; make it a number above 0")
    hidden = row.fields.get("hidden", True)
    if not isinstance(hidden, bool):
        raise row.wrong(f"'hidden' is {hidden!r}; make it true or false")
    tree, bug = tree if image else tree.resolve(), row.fields.get("bug")
    check = RepositoryTests(
        tree=str(tree),
        fail_to_pass=ids(row, "fail_to_pass"),
        pass_to_pass=ids(row, "pass_to_pass"),
        tests=row.texts("test_files"),
        test_patch=row.diff("test_patch", default=""),
        pytest_arguments=row.texts("pytest_arguments"),
        environment=variables,
        roots=tuple(str((home / root).absolute()) for root in roots),
        seconds=float(seconds),
        hidden=hidden,
        image=image,
        bug=str(bug or ""),
    )
    if check.bug and not image:
        try:
            tree_of(check)
        except DataError as error:
            raise row.wrong(f"'bug' is no diff that 'tree' takes: {error}") from None
    prompt, reference = row.text("prompt"), row.diff("reference", default="") or None
    return Task(id, prompt, (check,), "", language="diff", reference=reference,
                demonstrations=row.texts("demonstrations"))  # fmt: skip


def ids(row: Row, name: str) -> tuple[str, ...]:
    """The ids of tests, by a name that may be in capitals: a list, or one as JSON or Python writes
    it. Raises DataError.
    """
    name = name if name in row.fields else name.upper()
    value: Any = row.fields.get(name)
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = read(value) if isinstance(value, str) else value
    if isinstance(value, str):
        raise row.wrong(f"{name!r} is no list of tests' ids")
    return tuple(dict.fromkeys(map(without_time, Row({name: value}, row.where).texts(name))))


def without_time(test: str) -> str:
    """An id of a test without the time that it took, which some logs add to it."""
    name = TIME.sub("", test)
    return test if name.count("[") > name.count("]") else name
