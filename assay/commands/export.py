"""assay export: a model folder with a card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options


def export(
    source: Annotated[Path, typer.Argument(help="A run, a stage of it, or a checkpoint.")],
    out: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the model run Python code of its own.")
    ] = False,
) -> None:
    """Write a checkpoint as a Hugging Face model with a card; an adapter is merged."""
    options.quiet_transformers()
    from assay.train.export import export as run

    typer.echo(f"exported {run(source, out, trust_remote_code)} to {out}")
