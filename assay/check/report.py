"""What `assay check` does: load tasks, try them, and write the report and the sound tasks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from assay.check.findings import WARNINGS, Finding, Flaw, inspect_texts
from assay.check.trial import ProgramRunner, run_trials
from assay.errors import DataError, SettingsError
from assay.files import write_atomically
from assay.paths import real_path, require_output
from assay.progress import cell
from assay.suggestions import suggest
from assay.task_specs import own_data, split_spec
from assay.tasks import load
from assay.tasks.data_files import files_of
from assay.tasks.exact import row_of
from assay.tasks.jsonl import known_rows, own_task
from assay.types import Task

SHOWN = 4
"""Task ids per finding in the table."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Everything found about one task."""

    id: str
    """The task's id; for a row that is not a task, its file and line."""
    task: Task | None
    """None for a row that is not a task."""
    findings: tuple[Finding, ...]
    sound: bool
    """Whether the task belongs in the output."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        findings = {str(finding.flaw): finding.detail for finding in self.findings}
        return {"id": self.id, "kept": self.sound, "findings": findings}


def check(
    spec: str, *, limit: int | None = None, keep: Collection[str] = (), strict: bool = False,
    runner: ProgramRunner | None = None,
) -> list[TaskReport]:  # fmt: skip
    """Checks the tasks of `spec` as `assay check` does, and returns a report on each, in order.
    Rows that are not tasks come last.

    With `limit` it checks only the first tasks. A finding that `keep` names drops no task. With
    `strict` every other finding drops its task. It works inside a running event loop.

    Raises SettingsError for an unknown name in `keep`, DataError if nothing can be
    read, SandboxError like the judge.
    """
    flaws = [str(flaw) for flaw in Flaw if flaw is not Flaw.INVALID_ROW]
    for name in keep:
        if name not in flaws:
            raise SettingsError(f"unknown finding {name!r} to keep; {suggest(name, flaws)}")
    harmless = set(keep) if strict else WARNINGS.union(keep)
    tasks, invalid = read_tasks(spec, limit)
    reports = []
    trials = run_trials(tasks, runner or ProgramRunner())
    for trial, from_text in zip(trials, inspect_texts(tasks), strict=True):
        findings = (*trial.findings, *from_text)
        sound = all(finding.flaw in harmless for finding in findings)
        reports.append(TaskReport(trial.task.id, trial.task, findings, sound))
    return reports + invalid


def read_tasks(spec: str, limit: int | None) -> tuple[list[Task], list[TaskReport]]:
    """The tasks of `spec`, and for rows of your own a report on each that is not a task."""
    name, file = split_spec(spec)
    if name != "jsonl" or not file:
        return load(spec, limit=limit), []
    tasks, invalid = dict[str, Task](), list[TaskReport]()
    for row in islice(known_rows(file), limit):
        try:
            task = own_task(row)
            if not task.checks:
                raise row.wrong("has no tests; add one, or remove the row")
            if task.id in tasks:
                raise row.wrong(f"the id {task.id!r} occurs twice; ids must be unique")
            tasks[task.id] = task
        except DataError as error:
            finding = Finding(Flaw.INVALID_ROW, str(error).removeprefix(row.where).lstrip(":, "))
            invalid.append(TaskReport(row.where, None, (finding,), sound=False))
    if not tasks:
        first = invalid and f"{invalid[0].id}: {invalid[0].findings[0].detail}"
        raise DataError(first or f"{spec} holds no tasks; check the file")
    return list(tasks.values()), invalid


def naming_check(error: DataError, spec: str) -> DataError:
    """An error of reading the tasks of `spec`, which names `assay check` where that would keep
    other rows of the same file.
    """
    with suppress(DataError):
        tasks, invalid = read_tasks(spec, None) if Path(spec).is_file() else ([], [])
        if tasks and invalid:
            command = f"assay check {shlex.quote(spec)} --output sound.jsonl"
            return type(error)(f"{error}; `{command}` writes the tasks that are right")
    return error


def require_writable(spec: str, output: Path | None, report: Path | None, *inputs: Path) -> None:
    """Refuse output paths that cannot be written, cannot be read back or are an input: the tasks,
    or one of `inputs`.

    Raises SettingsError; call it before anything is judged.
    """
    if output is not None and output.suffix != ".jsonl":
        raise SettingsError(f"{output} must end in .jsonl, to be read as tasks again")
    data, split = own_data(spec), split_spec(spec)[1]
    files = files_of(data) if data else [Path(split)] if split else []
    for file in [file for file in (output, report) if file is not None]:
        require_output(file, [*inputs, *files])
    if output is not None and report is not None and real_path(output) == real_path(report):
        raise SettingsError(f"--output and --report are both {output}; give two paths")


def write_tasks(file: Path, reports: Sequence[TaskReport]) -> None:
    """Write the sound tasks, in the form that `assay.tasks.load` reads back."""
    sound = (report.task for report in reports if report.sound and report.task)
    write_atomically(file, "".join(json.dumps(row_of(task)) + "\n" for task in sound))


def as_dict(spec: str, reports: Sequence[TaskReport]) -> dict[str, Any]:
    """The report as plain data: counts, and each task that has findings."""
    return {
        "tasks": spec,
        "checked": len(reports),
        "kept": sum(report.sound for report in reports),
        "findings": {str(flaw): len(having) for flaw, having in by_flaw(reports).items()},
        "flawed": [report.as_dict() for report in reports if report.findings],
    }


def by_flaw(reports: Sequence[TaskReport]) -> dict[Flaw, list[TaskReport]]:
    """The tasks that have each flaw; flaws that no task has are left out."""
    having = {
        flaw: [task for task in reports if flaw in [finding.flaw for finding in task.findings]]
        for flaw in Flaw
    }
    return {flaw: tasks for flaw, tasks in having.items() if tasks}


def first_reasons(reports: Sequence[TaskReport]) -> list[str]:
    """For each finding that no kept task has, a line with the reason of the first task."""
    return [
        f"{flaw}: {having[0].id}: {detail}"
        for flaw, having in by_flaw(reports).items()
        if not any(report.sound for report in having)
        for detail in [next(each.detail for each in having[0].findings if each.flaw is flaw)]
    ]


def table(reports: Sequence[TaskReport]) -> Table:
    """Findings, how many tasks have them, how many of those are kept, and the first ids."""
    count, sound = Column("tasks", justify="right"), Column("kept", justify="right")
    view = Table("finding", count, sound, "examples", box=None, pad_edge=False)
    for flaw, tasks in by_flaw(reports).items():
        ids = [task.id for task in tasks[:SHOWN]] + ["..."] * (len(tasks) > SHOWN)
        sound_tasks = sum(task.sound for task in tasks)
        view.add_row(flaw, str(len(tasks)), str(sound_tasks), cell(", ".join(ids)))
    return view
