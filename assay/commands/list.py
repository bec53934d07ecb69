"""assay list: the plug-ins."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.registry import (
    KINDS,
    KINDS_OF_TESTS,
    first_sentence,
    import_installed,
    installed,
    registry_of,
)
from assay.suggestions import suggest


def list_plugins(
    kind: Annotated[
        str | None,
        typer.Argument(help="List only these: rewards, callbacks, kinds (of tests) and so on."),
    ] = None,
    plugins: options.Plugins = None,
) -> None:
    """List algorithms, rewards, task sets and all other plug-ins, and say what each does."""
    from rich.table import Table

    every = [*KINDS, KINDS_OF_TESTS]
    if kind is not None and kind not in every:
        raise SettingsError(f"unknown kind {kind!r}; {suggest(kind, every)}")
    table = Table("kind", "name", "what it is", box=None, header_style="bold", pad_edge=False)
    for folder in [kind] if kind else every:
        for name, summary in _plugins(folder):
            table.add_row(folder, name, summary)
    options.show(table)


def _plugins(folder: str) -> Iterator[tuple[str, str]]:
    """The names of plug-ins with their first sentence; of a kind of test, those of its check."""
    if folder == KINDS_OF_TESTS:
        import assay.judge.kinds.find  # noqa: F401  imports all of them
        from assay.judge.kinds.kind import KINDS as KINDS_OF_CHECKS

        for name in installed(KINDS_OF_TESTS):
            import_installed(KINDS_OF_TESTS, name)
        for check in sorted(KINDS_OF_CHECKS, key=lambda check: check.__name__):
            yield check.__name__, first_sentence(_docstring(check))
        return
    registry = registry_of(folder)
    for name in registry:
        yield name, registry.summary(name)


def _docstring(check: type) -> str | None:
    """That of a class of checks, or of its module: without one, a dataclass has its signature."""
    text, module = inspect.getdoc(check), inspect.getmodule(check)
    return module.__doc__ if module and str(text).startswith(f"{check.__name__}(") else text
