"""The command's whole work: reads tasks, proves them, writes the report and the tasks that are
sound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from assay.check.findings import TOLD, Finding, Flaw, read
from assay.check.trial import Bench, try_out
from assay.errors import DataError, SettingsError
from assay.files import write_atomically
from assay.registry import suggest
from assay.tasks import is_file, load
from assay.tasks.exact import row_of
from assay.tasks.jsonl import task_of
from assay.tasks.rows import file_rows
from assay.types import Task

SHOWN = 4
"""Ids of a finding that the table names."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found out about one task."""

    id: str
    """The task's; where a row is no task, where it stands."""
    task: Task | None
    findings: tuple[Finding, ...]
    kept: bool


def check(
    spec: str, limit: int | None, bench: Bench, keep: Collection[str], strict: bool
) -> list[Checked]:
    """Prove the tasks of `spec`, in their order; rows that are no tasks come last.

    Flaws named in `keep` take no task out; `strict` makes every other one do so. Raises
    SettingsError for an unknown name in `keep`, DataError where nothing can be read.
    """
    flaws = [str(flaw) for flaw in Flaw if flaw is not Flaw.UNUSABLE]
    for name in keep:
        if name not in flaws:
            raise SettingsError(f"unknown finding {name!r} to keep; {suggest(name, flaws)}")
    fine = set(keep) if strict else TOLD.union(keep)
    tasks, unusable = read_tasks(spec, limit)
    checked = [
        Checked(
            task.id, task, (*ran, *said), all(finding.flaw in fine for finding in (*ran, *said))
        )
        for task, said, ran in zip(tasks, read(tasks), try_out(tasks, bench), strict=True)
    ]
    return checked + unusable


def read_tasks(spec: str, limit: int | None) -> tuple[list[Task], list[Checked]]:
    """The tasks of `spec`, and for a file of JSON lines what is wrong with each row that is no
    task.
    """
    name, colon, split = spec.partition(":")
    if not is_file(spec) or (colon and name != "jsonl"):
        return load(spec, limit=limit), []
    tasks: dict[str, Task] = {}
    unusable: list[Checked] = []
    for row in islice(file_rows(Path(split or spec)), limit):
        try:
            task = task_of(row)
            if not task.checks:
                raise row.wrong("has no tests; add one, or take the row out")
            if task.id in tasks:
                raise row.wrong(f"the id {task.id!r} occurs twice; ids must be unique")
            tasks[task.id] = task
        except DataError as error:
            finding = Finding(Flaw.UNUSABLE, str(error).removeprefix(f"{row.where}: "))
            unusable.append(Checked(row.where, None, (finding,), kept=False))
    if not tasks and unusable:
        raise DataError(f"{unusable[0].id}: {unusable[0].findings[0].detail}")
    if not tasks:
        raise DataError(f"{spec} holds no tasks; check the file")
    return list(tasks.values()), unusable


def require_writable(spec: str, output: Path | None, report: Path | None) -> None:
    """Refuse, before anything is judged, what could not be written or read back, or would overwrite
    the tasks.

    Raises SettingsError.
    """
    if output is not None and output.suffix != ".jsonl":
        raise SettingsError(f"{output} is no name that tasks are read from; end it in .jsonl")
    files = [file for file in (output, report) if file is not None]
    for file in files:
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise SettingsError(f"{file} cannot be written; choose another path")
        if file.resolve() == Path(spec.partition(":")[2] or spec).resolve():
            raise SettingsError(f"{file} holds the tasks that are checked; choose another path")
    if output is not None and report is not None and output.resolve() == report.resolve():
        raise SettingsError(f"{output} is given for the tasks and for the report; give two paths")


def write_tasks(file: Path, checked: Sequence[Checked]) -> None:
    """The tasks that are kept, as `assay.tasks.load` reads them back."""
    kept = [row_of(one.task) for one in checked if one.kept and one.task is not None]
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in kept))


def as_dict(spec: str, checked: Sequence[Checked]) -> dict[str, Any]:
    """The report as plain data: counts, and each task that has findings."""
    return {
        "tasks": spec,
        "checked": len(checked),
        "kept": sum(one.kept for one in checked),
        "findings": {str(flaw): len(found) for flaw, found in by_flaw(checked).items()},
        "flawed": [
            {
                "id": one.id,
                "kept": one.kept,
                "findings": {str(found.flaw): found.detail for found in one.findings},
            }
            for one in checked
            if one.findings
        ],
    }


def by_flaw(checked: Sequence[Checked]) -> dict[Flaw, list[Checked]]:
    """The tasks that have each flaw, as far as there are any."""
    having = {
        flaw: [one for one in checked if any(found.flaw is flaw for found in one.findings)]
        for flaw in Flaw
    }
    return {flaw: found for flaw, found in having.items() if found}


def table(checked: Sequence[Checked]) -> Table:
    """Findings, how many tasks have them, how many of those are kept, and the first ids."""
    tasks, kept = Column("tasks", justify="right"), Column("kept", justify="right")
    shown = Table(
        "finding", tasks, kept, "the first of them", box=None, header_style="bold", pad_edge=False
    )
    for flaw, found in by_flaw(checked).items():
        ids = [one.id for one in found[:SHOWN]] + ["..."] * (len(found) > SHOWN)
        shown.add_row(flaw, str(len(found)), str(sum(one.kept for one in found)), ", ".join(ids))
    return shown
