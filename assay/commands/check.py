"""assay check: tests tasks before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.files import write_atomically
from assay.progress import Progress, counted
from assay.strict_json import strict_json

Output = Annotated[Path | None, typer.Option(help="Write the sound tasks to this .jsonl file.")]


def check(
    tasks: Annotated[
        str, typer.Argument(help="A task set: humaneval, mbpp:train, drills:test, a .jsonl file.")
    ],
    output: Output = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the findings to this file, as JSON.")
    ] = None,
    to_calls: Annotated[
        Path | None,
        typer.Option(help="Only write the tasks as calls, up to 100 each, of the split `python`."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Drop a task for any finding; exit 1 if one dropped.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="A finding that drops no task: constant_passes.")
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
    """Test tasks before training: references must pass; lazy programs and attacks must not."""
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
    tables_shown = [checking.table(reports)] if summary["flawed"] else []
    prompt = checking.first_prompt(reports)
    before = [*([""] if tables_shown else []), prompt, ""] if prompt else []
    end = "\n".join([*before, f"kept {summary['kept']} of {counted(len(reports), 'task')}"])
    if summary["flawed"] and report is None:
        end += "; --report FILE writes the reason of each finding"
    options.print_result(summary, as_json, tables_shown, end)
    if strict and summary["kept"] < len(reports):
        raise typer.Exit(1)
