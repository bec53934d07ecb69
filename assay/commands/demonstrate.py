"""assay demonstrate: plays references in a shell, for SFT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.commands import options
from assay.errors import DataError, MachineError
from assay.progress import Progress, counted

if TYPE_CHECKING:
    from assay.demonstrate.demonstrate import DemonstrationSummary


def demonstrate(
    tasks: Annotated[
        str, typer.Argument(help="Repositories: made/tasks.jsonl of `assay make-tasks`.")
    ],
    out: Annotated[Path, typer.Option(help="Append the rows to this .jsonl file.")],
    samples: Annotated[int, typer.Option(min=1, help="Conversations of each task.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the scripts. Another seed adds other conversations.")
    ] = 0,
    tool_calls: Annotated[
        Literal["template", "text"],
        typer.Option(help="Calls for the chat template, or as text, as in the later RL."),
    ] = "template",
    observations: Annotated[
        Literal["xml", "json"],
        typer.Option(help="Format of what commands print, as in the later RL."),
    ] = "xml",
    limit: options.Limit = None,
    slots: options.Slots = None,
    plugins: options.Plugins = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Play the references of repositories in the environment `shell`, and write what passes as rows
    for SFT. To resume after a kill, run the same command again.
    """
    from assay import environments
    from assay.check.report import require_writable
    from assay.demonstrate.demonstrate import (
        DemonstrationSummary,
        play_references,
        require_repositories,
    )
    from assay.demonstrate.rows import RowFile
    from assay.judge import Judge
    from assay.sync import run_sync, termination_interrupts
    from assay.tasks import load

    table = {"name": "shell", "tool_calls": tool_calls, "observations": observations}
    shell = environments.build(table)
    require_writable(tasks, out, None, *(plugins or ()))
    loaded = load(tasks, limit=limit)
    require_repositories(loaded, tasks)
    judge = Judge(slots=slots, allow_weak=allow_weak, allow_forgeable=True)
    summary = DemonstrationSummary()
    with RowFile(out, shell) as file:
        try:
            with termination_interrupts(), options.quietly("assay.judge"), Progress() as progress:
                run_sync(play_references(
                    loaded, shell, judge, file, summary, progress, samples=samples, seed=seed
                ))  # fmt: skip
        finally:
            if summary.present or summary.fates:
                _print(summary, out, as_json)
    _require_rows(summary, tasks)


def _print(summary: DemonstrationSummary, out: Path, as_json: bool) -> None:
    fates = {fate.value: count for fate, count in summary.fates.items()}
    result: dict[str, Any] = {
        "present": summary.present, "kept": summary.added, **fates,
        "reasons": {fate.value: why for fate, why in summary.reasons.items()}, "file": str(out),
    }  # fmt: skip
    others = [
        f"{name:<9}{count}, first {summary.reasons[fate]}"
        for fate, name, count in ((fate, fate.value, n) for fate, n in summary.fates.items())
        if fate in summary.reasons
    ]
    before = f", beside {summary.present} that were there" if summary.present else ""
    end = f"kept     {counted(summary.added, 'conversation')}{before} in {out}"
    options.print_result(result, as_json, [], "\n".join([*others, end]))


def _require_rows(summary: DemonstrationSummary, tasks: str) -> None:
    """Raises MachineError where the machine failed some, DataError where no row is there."""
    if lost := summary.lost:
        raise MachineError(
            f"the machine failed {counted(lost, 'conversation')}, first {summary.why_lost}; run"
            " the command again, which goes on with those"
        )
    if not summary.added + summary.present:
        reasons = "; ".join(f"{fate} {why}" for fate, why in summary.reasons.items())
        raise DataError(f"no conversation of {tasks} passes: {reasons}")
