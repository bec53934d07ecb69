"""assay screen: keeps the tasks that a model solves some, but not all of the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.commands import options
from assay.commands.evaluate import FLAGS, run_of, with_flags
from assay.errors import DataError, SettingsError
from assay.files import write_atomically
from assay.progress import Progress


def screen(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=FLAGS["model"][2])],
    tasks: Annotated[
        str, typer.Argument(help="A task set: mbpp:train, drills:train, a .jsonl file.")
    ],
    output: Annotated[
        Path, typer.Option(help="Write the tasks that are kept to this .jsonl file.")
    ],
    at_least: Annotated[int, typer.Option(help="Keep a task that passes so many times.")] = 1,
    at_most: Annotated[
        int | None, typer.Option(help="And not more often; default: all samples but one.")
    ] = None,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Keep the tasks that MODEL solves sometimes: RL learns from those. tasks.train takes the file.

    Samples as `assay eval` does: any of its settings can be changed (--table.key value), and a
    command that was killed goes on where it was when it runs again.
    """
    from assay.check.report import require_writable
    from assay.evaluate import evaluate
    from assay.evaluate.report import table
    from assay.tasks import load
    from assay.tasks.exact import row_of

    run = run_of(None, context.args, {"model": model, "tasks": [tasks], **flags})
    samples = run.evaluate.samples
    at_most = samples - 1 if at_most is None else at_most
    if not 0 <= at_least <= at_most <= samples:
        raise SettingsError(
            f"--at-least {at_least} and --at-most {at_most} leave nothing of {samples} samples;"
            " write them in order, or raise --samples"
        )
    require_writable(tasks, output, None)
    options.quiet_transformers()
    with Progress() as progress:
        done = evaluate(run, progress=progress)
    results = {result.id: result for result in done.evaluations[0].per_task}
    judged = [task for task in load(tasks, limit=run.evaluate.limit) if task.id in results]
    rows, solved = [], {"never": 0, "sometimes": 0, "always": 0}
    for task, tally in ((task, results[task.id]) for task in judged):
        failed = tally.samples - tally.passed
        solved["always" if not failed else "sometimes" if tally.passed else "never"] += 1
        if tally.passed >= at_least and failed >= samples - at_most:
            rows.append(row_of(task) | {"rate": tally.passed / tally.samples})
    counts = ", ".join(f"{count} {often}" for often, count in solved.items())
    if not rows:
        raise DataError(
            f"no task of {tasks} is solved {at_least} to {at_most} times of {samples} ({counts});"
            " take other tasks or another model, or raise --samples"
        )
    write_atomically(output, "".join(json.dumps(row) + "\n" for row in rows))
    end = f"\nsolved   {counts}\nkept     {len(rows)} of {len(results)} tasks in {output}"
    result = {"solved": solved, "kept": [row["id"] for row in rows], "output": str(output)}
    options.print_result(result, as_json, ["", table(done.evaluations)], end)


with_flags(screen, FLAGS.keys() - {"model", "tasks", "greedy", "axis", "every_checkpoint"})
