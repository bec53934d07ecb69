"""BigCodeBench: tasks that use many libraries, with unittest classes (arXiv:2406.15877)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from assay.sandbox.access import PACKAGES
from assay.tasks import nemo_gym, task_set
from assay.tasks.kodcode import test_functions
from assay.tasks.python_source import parsed
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Task

VERSIONS = ("v0.1.0_hf", "v0.1.1", "v0.1.2", "v0.1.3", "v0.1.4")
FILE, HUB = "bigcodebench/{}.jsonl", "bigcode/bigcodebench"
BIGCODEBENCH = PublicSet("bigcodebench", FILE, HUB, None, VERSIONS, "{}")
OUTSIDE = {"ftplib", "http", "requests", "shutil", "smtplib", "socket", "socketserver",
           "subprocess", "tempfile", "urllib"}  # fmt: skip
"""Modules that reach files, processes or the network, which programs and tests do not have."""


@task_set
def bigcodebench(split: str = "v0.1.4") -> Iterator[Task]:
    """BigCodeBench (arXiv:2406.15877): the tasks whose packages programs can import here."""
    return usable_tasks(BIGCODEBENCH.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `complete_prompt`, `canonical_solution`, `entry_point` and `test`, or NeMo Gym's.

    Raises LeftOutError for a row whose code or tests need what is not here, DataError for a
    malformed one.
    """
    metadata = row.table("verifier_metadata")
    if metadata.fields:
        start, reference, prompt = metadata.text("code_prompt"), None, nemo_gym.prompt_of(row)
        row, stub = metadata, ""
    else:
        start = prompt = stub = row.text("complete_prompt")
        reference = start + row.text("canonical_solution")
    test = row.text("test")
    body = reference or f"{start}    pass\n"
    for module in sorted({*_imports(body, row, "complete_prompt"), *_imports(test, row, "test")}):
        _require(module)
    return Task(
        id=row.text("task_id"),
        prompt=prompt,
        checks=(test_functions(test),),
        entry_point=row.text("entry_point"),
        stub=stub,
        reference=reference,
    )


def _imports(source: str, row: Row, field: str) -> Iterator[str]:
    for node in ast.walk(parsed(source, row, field)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _require(module: str) -> None:
    """Raises LeftOutError for a module that no program, or no test, can use."""
    package = module.partition(".")[0]
    if module.startswith("unittest.mock"):
        raise LeftOutError("whose tests patch what the program uses")
    if package in OUTSIDE:
        raise LeftOutError("that need files, processes or the network")
    if package in sys.stdlib_module_names:
        return
    if package not in PACKAGES:
        raise LeftOutError(f"that need {package}, which programs cannot import")
    if find_spec(package) is None:
        raise LeftOutError(f"that need {package}, which is not installed")
