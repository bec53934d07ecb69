"""Mostly Basic Python Problems: 974 one-function tasks, each with its tests (arXiv:2108.07732)."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.humaneval import STOP
from assay.tasks.python_source import called_function, parsed
from assay.tasks.rows import PublicSet, Row
from assay.types import Check, Task

SPLITS = {
    "all": range(1, 975),
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""By task_id, as in the paper; the same ranges hold for the sanitized rows."""
HUB = "google-research-datasets/mbpp"
FULL = PublicSet("mbpp", "mbpp/mbpp.jsonl.gz", HUB, "full", SPLITS)
SANITIZED = PublicSet("mbpp_sanitized", "mbpp/sanitized-mbpp.json.gz", HUB, "sanitized", SPLITS)


@task_set
def mbpp(split: str = "test") -> Iterator[Task]:
    """Mostly Basic Python Problems (arXiv:2108.07732): test (500), train (374), validation, prompt,
    all (974).
    """
    return _tasks(FULL, split)


@task_set
def mbpp_sanitized(split: str = "test") -> Iterator[Task]:
    """MBPP's 427 hand-verified tasks (arXiv:2108.07732): test (257), train (120), validation,
    prompt, all.
    """
    return _tasks(SANITIZED, split)


def _tasks(public: PublicSet, split: str) -> Iterator[Task]:
    ids = SPLITS.get(split)
    return (
        task_of(row)
        for row in public.rows(split)
        if ids is None or row.fields.get("task_id") in ids
    )


def task_of(row: Row) -> Task:
    """A row in MBPP's format: task_id, text (or prompt), code, test_list, and test_setup_code or
    test_imports.

    Raises DataError when a field is missing, is no Python, or the tests call nothing that the code
    defines.
    """
    code, tests = row.text("code"), row.texts("test_list")
    if not tests:
        raise row.wrong("'test_list' is empty; add an assert, or remove the row")
    entry_point = called_function(
        [parsed(test, row, "test_list") for test in tests], parsed(code, row, "code")
    )
    if entry_point is None:
        raise row.wrong("'test_list' calls no function that 'code' defines; fix one of them")
    text = row.text("text" if "text" in row.fields else "prompt")
    setup = "\n".join([*row.texts("test_imports"), row.text("test_setup_code", default="")]).strip(
        "\n"
    )
    return Task(
        id=f"MBPP/{row.fields.get('task_id', row.place)}",
        prompt='"""\n' + "\n".join([text, *tests]) + '\n"""\n',
        checks=tuple(Check(test, hidden=False) for test in tests),
        entry_point=entry_point,
        setup=f"{setup}\n" if setup else "",
        reference=code,
        stop=STOP,
    )
