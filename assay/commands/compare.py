"""assay compare: evaluations on the same tasks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands import options

if TYPE_CHECKING:
    from assay.evaluate.compare import Comparison


def compare(
    evaluations: Annotated[
        list[Path],
        typer.Argument(help="Runs, their stages (RUN/grpo), evaluations, or folders of runs."),
    ],
    max_lost: Annotated[
        float,
        typer.Option(min=0, max=1, help="Exit with 3 if a larger share of completions is lost."),
    ] = 0.01,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables in Markdown, with all columns.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compare each evaluation with the first one, on the tasks that they share. Runs that differ
    only in the seed are one row.
    """
    from assay.evaluate.compare import compare as run

    comparison = run(evaluations)
    if as_json:
        options.print_result(asdict(comparison), as_json, [])
    elif markdown:
        options.echo(comparison.markdown())
    else:
        show_comparison(comparison)
    comparison.require_few_lost(max_lost)


def show_comparison(comparison: Comparison) -> None:
    """Print a comparison for a terminal: its tables with empty lines between, and its notes."""
    options.show(*(part for table in comparison.tables() for part in ("", table)))
    options.print_lines("\n" + "\n".join(comparison.notes))
