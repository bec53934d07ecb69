"""assay train: runs the stages of a settings file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options
from assay.progress import Progress, UnfailingStream


def train(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete this run's folder and start over.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check all settings and load all tasks; train nothing."),
    ] = False,
) -> None:
    """Train as CONFIG says. Any setting can be changed: --table.key value.

    A run that was stopped continues from its newest checkpoint.
    """
    plan = options.checked_plan(config, context.args)
    options.quiet_transformers()
    sys.stdout, sys.stderr = UnfailingStream(sys.stdout), UnfailingStream(sys.stderr)
    with Progress() as progress:
        from assay.train.stages import prepare_all, run_plan

        if dry_run:
            for stage in prepare_all(plan, dry_run):
                typer.echo(stage.summary)
            return
        outcome = run_plan(plan, fresh=fresh, announce=typer.echo, progress=progress)
    from assay.evaluate.report import read_held_out, table

    if outcome.evaluations:
        options.show("", table(outcome.evaluations))
    typer.echo()
    for one in read_held_out(outcome.folder):
        typer.echo(
            f"{one.stage}: {one.paid:.1%} pass the paid checks of {one.family}, {one.passed:.1%}"
            " those held out too"
        )
    if outcome.model:
        from assay.prompts import transformers_code

        code = transformers_code(outcome.model)
        typer.echo(f"The first task's prompt, with transformers:\n\n{code}\n")
        typer.echo(f"model    {outcome.model}")
    if outcome.best:
        typer.echo(f"best     {outcome.best}")
    for kind, pattern in (("report", "report.md"), ("plot", "*.png")):
        for file in outcome.folder.glob(pattern):
            typer.echo(f"{kind:<8} {file}")
    if outcome.advice:
        typer.echo(f"advice   {outcome.advice}")
    if not outcome.finished:
        command = shlex.join(["assay", "train", str(config), *context.args])
        typer.echo(f"stopped; continue with: {command}")
