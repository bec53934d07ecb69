"""assay show-prompt: prints what the model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options


def show_prompt(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
) -> None:
    """Print exactly what the model reads for a stage's first task, special tokens included."""
    plan = options.checked_plan(config, context.args)
    options.quiet_transformers()
    from assay.train.show import show_prompt as show

    show(plan, typer.echo)
