"""Options that several commands share, and what they all print with."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.progress import broken
from assay.registry import load_plugins

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.config.load import Plan

Tasks = Annotated[
    str, typer.Option(help="A task set: humaneval, mbpp:test, drills:test, a .jsonl file.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first tasks, this many.")]
Slots = Annotated[
    int | None, typer.Option(min=1, help="Programs that run at once; default: the CPU cores.")
]
CpuSeconds = Annotated[
    float, typer.Option(min=0.05, max=86_400, help="CPU time limit of one program.")
]
MemoryMb = Annotated[
    int, typer.Option(min=32, max=1_048_576, help="Memory limit of one program in MiB.")
]
Runs = Annotated[
    Path, typer.Argument(help="A run's folder, or one that holds runs: runs/demo, runs.")
]
AllowWeak = Annotated[
    bool, typer.Option(help="Judge even with weak isolation; see `assay doctor`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _load(paths: list[Path] | None) -> list[Path] | None:
    load_plugins(paths or ())
    return paths


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", callback=_load, help="Your Python file with plug-ins; may be repeated."
    ),
]
"""The files are imported while the command line is read: a command need not look at them."""


def checked_plan(config: Path, words: list[str]) -> Plan:
    """The plan of a settings file, with all built that needs no torch: a typo is answered at
    once.
    """
    from assay import environments, rewards
    from assay.config.load import load_plan
    from assay.policy.gguf import require_path
    from assay.tasks import load

    plan = load_plan(config, words)
    for settings in plan.stages:
        require_path(settings.policy.model)
        with plan.blaming(settings.stage, ("rewards",)):
            rewards.build(settings.rewards)
        with plan.blaming(settings.stage, ("environment",)):
            environments.build(settings.environment)
        with plan.blaming(settings.stage, ("tasks", "train")), quietly("assay.tasks"):
            for spec in settings.tasks.train:
                load(spec, limit=1, judged=False)  # prepare() knows what judges
        with plan.blaming(settings.stage, ("evaluate", "tasks")), quietly("assay.tasks"):
            for spec in settings.evaluate.tasks if settings.evaluate else ():
                load(spec, limit=1)
    return plan


def print_result(
    result: dict[str, Any], as_json: bool, tables: Sequence[RenderableType], end: str = ""
) -> None:
    """Print a result as JSON, or else what is shown of it: tables, and lines at the end."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    if tables:
        show(*tables)
    if sys.stdout.isatty():
        end = "\n".join(broken(line, get_terminal_size().columns) for line in end.split("\n"))
    typer.echo(end, nl=bool(end))


def tell_forgeable(passes: int) -> str:
    """A line on the passes that a program could have forged; empty for none."""
    return f"\nforgeable {passes} of the passes" if passes else ""


def show(*tables: RenderableType) -> None:
    """Print tables and lines to standard output."""
    from rich.console import Console

    Console().print(*tables)


@contextmanager
def quietly(name: str) -> Iterator[None]:
    """Hide the warnings of one logger and of those below it."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def quiet_transformers() -> None:
    """Keep the warnings of transformers off the terminal."""
    import warnings

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", module="transformers")
