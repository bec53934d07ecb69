"""assay list: the plug-ins."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.registry import KINDS, registry_of, suggest


def list_plugins(
    kind: Annotated[
        str | None, typer.Argument(help="Only algorithms, environments, rewards or tasks.")
    ] = None,
    plugins: options.Plugins = None,
) -> None:
    """List every plug-in with one line of help."""
    from rich.table import Table

    if kind is not None and kind not in KINDS:
        raise SettingsError(f"unknown kind {kind!r}; {suggest(kind, KINDS)}")
    table = Table("kind", "name", "what it is", box=None, header_style="bold", pad_edge=False)
    for folder in [kind] if kind else KINDS:
        registry = registry_of(folder)
        for name in registry:
            table.add_row(folder, name, registry.summary(name))
    options.show(table)
