"""assay compare: evaluations on the same tasks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options


def compare(
    evaluations: Annotated[
        list[Path],
        typer.Argument(help="Runs, their stages (RUN/grpo), evaluations, or folders of runs."),
    ],
    max_lost: Annotated[
        float,
        typer.Option(min=0, max=1, help="Exit with 3 if a larger share of completions is lost."),
    ] = 0.01,
    as_json: options.Json = False,
) -> None:
    """Compare evaluations on the same tasks, each with the first; runs over seeds as one row."""
    from assay.evaluate.compare import compare as run

    comparison = run(evaluations)
    options.print_result(asdict(comparison), as_json, [], comparison.markdown())
    comparison.require_few_lost(max_lost)
