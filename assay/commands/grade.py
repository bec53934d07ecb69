"""assay grade: judges completions from a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands import options
from assay.errors import DataError, MachineError
from assay.progress import Progress, counted

if TYPE_CHECKING:
    from assay.evaluate.grade import GradeSummary


def grade(
    tasks: options.Tasks,
    samples: Annotated[
        Path, typer.Option(help='JSON lines with "task_id" and "solution" or "reply".')
    ],
    output: Annotated[
        Path | None, typer.Option(help="Write the verdicts here; default: SAMPLES.verdicts.jsonl.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="URL of an `assay serve` that judges; may be repeated.")
    ] = None,
    slots: options.Slots = None,
    cpu_seconds: options.CpuSeconds = 4.0,
    memory_mb: options.MemoryMb = 512,
    plugins: options.Plugins = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Judge a file of samples, and write the verdict of each to a file.

    A row has the program as "solution", what continues the task's stub as "completion", or a
    model's "reply" that holds the program. If it has several, the first counts.
    """
    from pydantic import ValidationError

    from assay.check.report import require_writable
    from assay.config.messages import refusal
    from assay.config.sections import JudgeSettings
    from assay.evaluate import grade as grading
    from assay.tasks import load

    table = {"servers": tuple(server or ()), "slots": slots, "cpu_seconds": cpu_seconds,
             "memory_mb": memory_mb, "allow_weak_isolation": allow_weak}  # fmt: skip
    try:
        judge = JudgeSettings.model_validate(table)
    except ValidationError as error:
        raise refusal(error, (), "judge") from None
    require_writable(tasks, None, output, samples, *(plugins or ()))
    with Progress() as progress:
        progress.phase(f"loading {tasks}")
        graded = grading.grade(samples, load(tasks), judge=judge, output=output, progress=progress)
    rate = _rate(graded)
    counts = Counter(graded.verdicts).most_common()
    name = "pass@1 "
    if missing := graded.without_samples:
        name = "partial"
        rate += f"; no pass@1 of the set, which has {missing} more without samples"
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in counts)
    forgeable = options.tell_forgeable(graded.forgeable)
    lines = f"{name}  {rate}\nverdicts {verdicts}{forgeable}\nfile     {graded.file}"
    options.print_result(asdict(graded), as_json, [], lines)
    if lost := graded.verdicts.get("infra"):
        raise MachineError(
            f"the machine failed {lost} of {counted(graded.samples, 'sample')}; they are"
            " marked infra, grade them again"
        )
    for task, why in graded.unjudged.items():
        raise DataError(
            f"{len(graded.unjudged)} of the tasks cannot be judged, first {task!r}: {why}"
        )


def _rate(graded: GradeSummary) -> str:
    if graded.pass_at_1 is None:
        return "none: no sample was judged"
    low, high = graded.interval.low, graded.interval.high
    lost = f"; {graded.lost} of {counted(graded.samples, 'sample')} lost" * bool(graded.lost)
    tasks = counted(graded.tasks, "task")
    return f"{graded.pass_at_1:.3f}  [{low:.3f}, {high:.3f}] over {tasks}{lost}"
