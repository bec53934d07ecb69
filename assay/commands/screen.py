"""assay screen: keeps the tasks that a model solves some, but not all of the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.commands.evaluate import FLAGS, run_of, with_flags
from assay.errors import DataError, SettingsError
from assay.files import write_atomically
from assay.progress import Progress, counted

if TYPE_CHECKING:
    from assay.evaluate.report import Evaluation


def screen(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=FLAGS["model"][2])],
    tasks: Annotated[
        str, typer.Argument(help="A task set: mbpp:train, drills:train, a .jsonl file.")
    ],
    output: Annotated[
        Path, typer.Option(help="Write the tasks that are kept to this .jsonl file.")
    ],
    at_least: Annotated[
        int, typer.Option(help="Keep a task only if this many of its samples pass, or more.")
    ] = 1,
    at_most: Annotated[
        int | None,
        typer.Option(help="Keep it only if no more pass than this; default: all but one."),
    ] = None,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Keep the tasks that MODEL solves sometimes, because RL learns from those. Set tasks.train to
    the file that it writes.

    It samples as `assay eval` does, and takes the same settings (--table.key value). To resume
    after a kill, run the same command again.
    """
    from assay.check.report import require_writable
    from assay.evaluate import evaluate
    from assay.evaluate.report import require_few_lost, table
    from assay.evaluate.screen import ScreenRule, how_often
    from assay.tasks import load
    from assay.tasks.exact import row_of

    options.require_argument(context, model)
    run = run_of(context, None, {"model": model, "tasks": [tasks], **flags})
    samples = run.evaluate.samples
    at_most = samples - 1 if at_most is None else at_most
    _require_bounds(at_least, at_most, samples)
    require_writable(tasks, output, None, Path(model))
    options.quiet_transformers()
    with Progress() as progress:
        done = evaluate(run, progress=progress)
    evaluation, every = done.evaluations[0], load(tasks, limit=run.evaluate.limit)
    results, rule = evaluation.per_task, ScreenRule(samples, at_least, at_most)
    rates = {it.id: it.passed / it.samples for it in results if rule.is_kept(it)}
    rows = [row_of(task) | {"rate": rates[task.id]} for task in every if task.id in rates]
    solved = how_often(results)
    counts = ", ".join(f"{count} {often}" for often, count in solved.items()) + _lost(evaluation)
    if not rows:
        require_few_lost(done.evaluations, run.evaluate.max_lost)
        raise DataError(
            f"no task of {tasks} is solved {at_least} to {at_most} times of {samples} ({counts});"
            " take other tasks or another model, or raise --samples"
        )
    write_atomically(output, "".join(json.dumps(row) + "\n" for row in rows))
    end = f"\nsolved   {counts}\nkept     {len(rows)} of {counted(len(every), 'task')} in {output}"
    result = {"solved": solved, "lost": evaluation.lost_by_task,
              "kept": [row["id"] for row in rows], "output": str(output)}  # fmt: skip
    options.print_result(result, as_json, ["", table(done.evaluations)], end)
    require_few_lost(done.evaluations, run.evaluate.max_lost)


def _require_bounds(at_least: int, at_most: int, samples: int) -> None:
    """Raises SettingsError for bounds between which no task can be."""
    if not 0 <= at_least <= at_most <= samples:
        raise SettingsError(
            f"--at-least {at_least} and --at-most {at_most} leave nothing of {samples} samples;"
            " write them in order, or raise --samples"
        )


def _lost(evaluation: Evaluation) -> str:
    """How many tasks were judged on fewer completions; empty where none was lost."""
    if not (lost := evaluation.lost_by_task):
        return ""
    fewer = lost.keys() & {task.id for task in evaluation.per_task}
    return (
        f"; {evaluation.lost} completions were lost: {len(fewer)} of these tasks got fewer,"
        f" {len(lost) - len(fewer)} more got none"
    )


with_flags(screen, FLAGS.keys() - {"model", "tasks", "greedy", "axis", "every_checkpoint"})
