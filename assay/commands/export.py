"""assay export: a model folder with a card."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options


class Dtype(StrEnum):
    """Data types of exported weights."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def export(
    source: Annotated[Path, typer.Argument(help="A run, a stage of it, or a checkpoint.")],
    out: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the model run Python code of its own.")
    ] = False,
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="Data type of the weights. auto: the one of the training, or float32 where"
            " rounding a merged adapter would take back more than a tenth of what it learned."
        ),
    ] = Dtype.AUTO,
) -> None:
    """Write a checkpoint as a Hugging Face model with a card; an adapter is merged."""
    options.quiet_transformers()
    from assay.train.export import export as run

    exported = run(source, out, trust_remote_code, dtype.value)
    options.echo(f"exported {exported.checkpoint} to {out} in {exported.dtype}")
    if exported.distance:
        options.echo(exported.distance)
