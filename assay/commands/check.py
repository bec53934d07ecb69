"""assay check: tests tasks before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.files import write_atomically
from assay.lines import source_lines
from assay.progress import Progress, counted
from assay.strict_json import strict_json
from assay.types import printable

if TYPE_CHECKING:
    from assay.check.report import TaskReport

MOST_LINES, LONGEST_LINE = 16, 120
"""Lines of a prompt that are shown, and letters of each."""
LONGEST_REASON = 300
"""Letters that are shown of the reason of a finding."""
Output = Annotated[Path | None, typer.Option(help="Write the sound tasks to this .jsonl file.")]
ToCalls = Annotated[
    Path | None,
    typer.Option(
        help="Turn tests in another language into calls. It runs the tests of the set's split"
        " `python`, and writes up to 100 of their calls a task to this .jsonl file."
    ),
]


def check(
    tasks: Annotated[
        str, typer.Argument(help="A task set: humaneval, mbpp:train, drills:test, a .jsonl file.")
    ],
    output: Output = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the findings to this file, as JSON.")
    ] = None,
    to_calls: ToCalls = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Drop tasks for warnings too. Exit with 1 if any was dropped."
        ),
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Keep tasks that have this finding, such as flaky. Repeat for more."),
    ] = None,
    reference_runs: options.ReferenceRuns = 2,
    limit: options.Limit = None,
    slots: options.Slots = None,
    cpu_seconds: options.CpuSeconds = 4.0,
    memory_mb: options.MemoryMb = 512,
    plugins: options.Plugins = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Test tasks before training. References must pass. Lazy programs and attacks must fail."""
    from assay.check import report as checking
    from assay.check.to_calls import to_calls as converted
    from assay.check.trial import ProgramRunner
    from assay.sandbox.limits import Limits

    if to_calls is not None and (output or report or strict or keep):
        raise SettingsError("--to-calls only converts; leave the options of a check out")
    checking.require_writable(tasks, to_calls or output, report, *(plugins or ()))
    with options.quietly("assay.judge"), Progress() as progress:
        progress.phase(f"loading {tasks}")
        bounds = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
        runner = ProgramRunner(bounds, slots, allow_weak, progress, reference_runs)
        if to_calls is not None:
            conversion = converted(tasks, limit, runner)
            calls = [checking.TaskReport(t.id, t, (), sound=True) for t in conversion.tasks]
            checking.write_tasks(to_calls, calls)
            options.print_result(conversion.as_dict(), as_json, [], conversion.summary())
            return
        reports = checking.check(tasks, limit=limit, keep=keep or (), strict=strict, runner=runner)
    summary = checking.as_dict(tasks, reports)
    if report is not None:
        write_atomically(report, strict_json(summary, indent=1) + "\n")
    if output is not None:
        checking.write_tasks(output, reports)
    tables = [checking.table(reports)] if summary["flawed"] else []
    options.print_result(summary, as_json, tables, _end(summary, reports, output, report))
    if strict and summary["kept"] < len(reports):
        raise typer.Exit(1)


def _end(
    summary: dict[str, Any], reports: Sequence[TaskReport], output: Path | None,
    report: Path | None,
) -> str:  # fmt: skip
    """What stands below the table: reasons, the first prompt, and how many tasks are kept."""
    from assay.check.report import first_reasons

    reasons = "".join(f"{_cut(line, LONGEST_REASON)}\n" for line in first_reasons(reports))
    words = [f"kept {summary['kept']} of {counted(len(reports), 'task')}"]
    if summary["flawed"] and output is None:
        words.append("--output FILE.jsonl writes the tasks that are kept")
    if summary["flawed"] and report is None:
        words.append("--report FILE writes the reason of each finding")
    parts = [f"\n{reasons}\n" if reasons else "", _first_prompt(reports), "; ".join(words)]
    return "".join(parts)


def _first_prompt(reports: Sequence[TaskReport]) -> str:
    """The first task as a chat model is shown it, shortened; empty where no row is a task."""
    from assay.prompts import messages

    task = next((report.task for report in reports if report.task), None)
    if task is None:
        return ""
    text = [
        f"{message.role}: {line}" if not number and message.role != "user" else line
        for message in messages(task)
        for number, line in enumerate(source_lines(message.content))
    ]
    lines = [_cut(line) for line in text[:MOST_LINES]]
    lines += [f"... {len(text) - MOST_LINES} more lines"] * (len(text) > MOST_LINES)
    title = f"the prompt of {_cut(task.id)}:"
    return "\n".join([title, *(f"  {line}" for line in lines), "", ""])


def _cut(line: str, longest: int = LONGEST_LINE) -> str:
    """The beginning of a line, of which a terminal obeys nothing."""
    return printable(line[:longest]) + "..." * (len(line) > longest)
