"""assay sample: demonstrations by rejection sampling, for SFT."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.commands.evaluate import FLAGS, run_of, with_flags
from assay.errors import DataError, SettingsError
from assay.files import write_atomically
from assay.progress import Progress, counted

if TYPE_CHECKING:
    from assay.evaluate.sample_file import SampleRow

END = """
passed   {passed} of {completions}
kept     {kept} of them, for {tasks} of {every}, in {output}"""


def sample(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=FLAGS["model"][2])],
    tasks: Annotated[
        str, typer.Argument(help="A task set: mbpp:train, drills:train, a .jsonl file.")
    ],
    output: Annotated[
        Path, typer.Option(help="Write the tasks with their demonstrations to this .jsonl file.")
    ],
    most: Annotated[
        int | None, typer.Option(min=1, help="Most replies of a task that are kept; default: all.")
    ] = None,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Keep the replies of MODEL that pass, as demonstrations for SFT. tasks.train takes the file.

    It samples as `assay eval` does, and takes the same settings (--table.key value). To resume
    after a kill, run the same command again.
    """
    from assay.check.report import require_writable
    from assay.evaluate import evaluate
    from assay.evaluate.report import require_few_lost, table
    from assay.evaluate.sample_file import SampleFile
    from assay.tasks import load
    from assay.tasks.exact import row_of

    options.require_argument(context, model)
    run = run_of(context, None, {"model": model, "tasks": [tasks], **flags})
    if (name := run.environment["name"]) != "single_turn":
        raise SettingsError(
            f"setting 'environment.name': a demonstration is one reply; leave out {name!r}"
        )
    require_writable(tasks, output, None, Path(model))
    options.quiet_transformers()
    with Progress() as progress:
        done = evaluate(run, progress=progress)
    with SampleFile(done.folder / "samples.jsonl") as file:
        replies = passing_replies(file.rows, run.judge.allow_forgeable)
    loaded = load(tasks, limit=run.evaluate.limit)
    solved = [
        replace(task, demonstrations=tuple(replies[task.id][:most]))
        for task in loaded
        if task.id in replies
    ]
    if not solved:
        require_few_lost(done.evaluations, run.evaluate.max_lost)
        raise DataError(
            f"no reply to a task of {tasks} is worth keeping; take easier tasks or another model"
        )
    write_atomically(output, "".join(json.dumps(row_of(task)) + "\n" for task in solved))
    result = {
        "sampled": len(file.rows), "passed": sum(row.verdict == "pass" for row in file.rows),
        "kept": sum(len(task.demonstrations) for task in solved), "tasks": len(solved),
        "output": str(output),
    }  # fmt: skip
    every, completions = counted(len(loaded), "task"), counted(len(file.rows), "completion")
    end = END.format(completions=completions, every=every, **result)
    options.print_result(result, as_json, ["", table(done.evaluations)], end)
    require_few_lost(done.evaluations, run.evaluate.max_lost)


def passing_replies(rows: Iterable[SampleRow], allow_forgeable: bool) -> dict[str, list[str]]:
    """The replies that pass, by task, in the order of their samples: of those with the same program
    the first. One that the token limit ended would teach not to end.
    """
    replies, programs = defaultdict[str, list[str]](list), set[tuple[str, str]]()
    for row in sorted(rows, key=lambda row: row.sample):
        is_right = row.verdict == "pass" and (allow_forgeable or not row.forgeable)
        program = row.task_id, row.solution.strip()
        if is_right and row.reply and not row.truncated and program not in programs:
            programs.add(program)
            replies[row.task_id].append(row.reply)
    return dict(replies)


with_flags(
    sample, FLAGS.keys() - {"model", "tasks", "greedy", "axis", "every_checkpoint", "environment"}
)
