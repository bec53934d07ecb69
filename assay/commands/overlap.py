"""assay overlap: finds tasks of a benchmark among the training tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.lines import source_lines
from assay.progress import Progress, cell, counted

if TYPE_CHECKING:
    from rich.table import Table

    from assay.evaluate.overlap import Pair
    from assay.types import Task

LINES = 24
"""Lines of a task that are shown."""


def overlap(
    train: Annotated[str, typer.Argument(help="Training tasks: mbpp:train, a .jsonl file.")],
    bench: Annotated[str, typer.Argument(help="The benchmark: humaneval, a .jsonl file.")],
    programs: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="Count pairs whose programs are at least this similar."),
    ] = 0.7,
    prompts: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="Count pairs whose prompts are at least this similar."),
    ] = 0.3,
    show: Annotated[int, typer.Option(min=0, help="Pairs shown side by side.")] = 5,
    limit: options.Limit = None,
    plugins: options.Plugins = None,
    as_json: options.Json = False,
) -> None:
    """Find benchmark tasks among training tasks, by programs and prompts. The exit code is 1 if
    there are any.
    """
    from assay.evaluate.overlap import find_overlap
    from assay.tasks import load

    with Progress() as progress:
        progress.phase(f"loading {train} and {bench}")
        tasks = [load(spec, limit=limit, judged=False) for spec in (train, bench)]
        progress.phase("comparing", len(tasks[0]))
        overlaps = find_overlap(
            *tasks, programs=programs, prompts=prompts, advance=lambda: progress.advance()
        )
    hit = {pair.bench.id for pair in overlaps.pairs}
    summary: dict[str, Any] = {
        "train": train, "bench": bench, "tasks": len(tasks[1]), "found": len(hit),
        "identical": len({pair.bench.id for pair in overlaps.pairs if pair.identical}),
        "pairs": [_row(pair) for pair in overlaps.pairs], "notes": overlaps.notes,
    }  # fmt: skip
    count = f"{len(hit)} of {counted(len(tasks[1]), 'task')} of {bench} are like a task of {train}"
    end = "\n".join([f"\n{count}; {summary['identical']} by an identical program", *overlaps.notes])
    options.print_result(summary, as_json, list(_tables(overlaps.pairs[:show])), end)
    if hit:
        raise typer.Exit(1)


def _row(pair: Pair) -> dict[str, Any]:
    scores = {"program": round(pair.program, 3), "prompt": round(pair.prompt, 3)}
    return {"train": pair.train.id, "bench": pair.bench.id, **scores, "identical": pair.identical}


def _tables(pairs: list[Pair]) -> Iterator[Table]:
    from rich.table import Table

    for pair in pairs:
        same = " (identical)" if pair.identical else ""
        title = f"programs {pair.program:.0%}{same}, prompts {pair.prompt:.0%}"
        table = Table(title=title, title_justify="left", expand=True)
        for task in (pair.train, pair.bench):
            table.add_column(cell(task.id), ratio=1)
        table.add_row(*(cell(_text(task)) for task in (pair.train, pair.bench)))
        yield table


def _text(task: Task) -> str:
    """The prompt and the reference, of which the prompt is no part."""
    program = (task.reference or "").removeprefix(task.prompt).strip("\n")
    lines = [line for line in source_lines(f"{task.prompt.strip()}\n\n{program}") if line.strip()]
    return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], "..."])
