"""Options that several commands share, and what they all print with."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from assay.config.toml_files import at_home, expanded
from assay.errors import DataError, SettingsError
from assay.files import encodable
from assay.progress import broken
from assay.registry import load_plugins
from assay.strict_json import strict_json
from assay.types import printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.config.load_settings import Plan

Tasks = Annotated[
    str, typer.Option(help="A task set: humaneval, mbpp:test, drills:test, a .jsonl file.")
]
ReferenceRuns = Annotated[
    int,
    typer.Option(
        min=2, help="How often to run the tests on right code. A test that does not always pass is"
        " named as flaky."
    ),
]  # fmt: skip
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N tasks.")]
Slots = Annotated[
    int | None, typer.Option(min=1, help="How many programs run at once; default: one per core.")
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
    bool, typer.Option("--allow-weak", help="Judge even with weak isolation; see `assay doctor`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def paths_at_home(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with paths and task sets of its options that start with ~ in the user's home
    folder: a shell expands none after an `=`. Settings of the run have the same rule as in a file.

    Names that are no UTF-8 are refused, as in settings: a report could not hold them, and libraries
    open no such file.
    """

    @wraps(command)
    def run(*values: Any, **options: Any) -> None:
        command(*values, **{name: _at_home(name, value) for name, value in options.items()})

    return run


def _at_home(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_at_home(name, each) for each in value]
    if isinstance(value, str | Path) and encodable(str(value)) != str(value):
        raise SettingsError(f"{encodable(str(value))}: the name is no UTF-8; rename the file")
    if isinstance(value, Path):
        return Path(expanded(str(value)))
    if isinstance(value, str) and name in ("tasks", "train", "bench"):
        return at_home({"tasks": {"train": value}})["tasks"]["train"]
    return value


def _load(paths: list[Path] | None) -> list[Path] | None:
    load_plugins(expanded(str(path)) for path in paths or ())
    return paths


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", callback=_load, help="A Python file with your plug-ins. Repeat for more."
    ),
]
"""The files are imported while the command line is read: a command need not look at them."""


class LegibleCommand(TyperCommand):
    """A command whose help fits a terminal of 80 columns: a kind of value takes one short word, and
    a flag takes none.
    """

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        for option in self.params:
            if isinstance(option, TyperArgument) and option.metavar is None:
                option.metavar = str(option.name).upper()  # as the sentences of the help call it
            if isinstance(option, TyperOption) and option.metavar is None:
                kind = option.bare_type().removeprefix("list[").removesuffix("]")
                option.metavar = "" if option.is_flag else METAVARS.get(kind)


METAVARS = {"str": "TEXT", "Path": "PATH", "int": "N", "float": "X"}
"""What the help calls a value of each type."""


def flags_of(context: typer.Context) -> list[str]:
    """The names of a command's options with dashes, which are no settings."""
    names = [*context.help_option_names, *(name for each in context.command.params
             for name in each.opts)]  # fmt: skip
    return [name.removeprefix("--") for name in names if name.startswith("--")]


def example(context: typer.Context) -> str:
    """The command's example, as a clause."""
    return f"for example: {str(context.command.epilog).removeprefix('Example: ')}"


def require_argument(context: typer.Context, value: str) -> None:
    """Raises SettingsError for an option that was taken for a command's first argument."""
    from assay.config.load_settings import parse_overrides

    if value.startswith("--"):
        next(parse_overrides([value, *context.args], flags=flags_of(context)))
        first = str(context.command.params[0].name).upper()
        raise SettingsError(
            f"{value} stands before {first}; write the settings behind it, {example(context)}"
        )


def checked_plan(context: typer.Context, config: Path, more: Sequence[str] = ()) -> Plan:
    """The plan of a settings file, with all built that needs no torch: a typo is answered at
    once. `more` words are added to those of the command line.
    """
    from assay import environments, rewards
    from assay.check.report import naming_check
    from assay.config.load_settings import load_plan
    from assay.policy.source import require_model
    from assay.tasks import load

    require_argument(context, str(config))
    plan = load_plan(config, [*context.args, *more], flags_of(context))
    for settings in plan.stages:
        require_model(settings.policy)
        with plan.blaming(settings.stage, ("rewards",)):
            rewards.build(settings.rewards)
        with plan.blaming(settings.stage, ("environment",)):
            environments.build(settings.environment, settings.judge.servers)
        with plan.blaming(settings.stage, ("tasks", "train")), quietly("assay.tasks"):
            for spec in settings.tasks.train:
                try:
                    load(spec, limit=1, judged=False)  # prepare() knows what judges
                except DataError as error:
                    raise naming_check(error, spec) from error
        with plan.blaming(settings.stage, ("evaluate", "tasks")), quietly("assay.tasks"):
            for spec in settings.evaluate.tasks if settings.evaluate else ():
                load(spec, limit=1)
    return plan


def print_result(
    result: dict[str, Any], as_json: bool, tables: Sequence[RenderableType], end: str = ""
) -> None:
    """Print a result as JSON, or else what is shown of it: tables, and lines at the end."""
    if as_json:
        typer.echo(strict_json(result))
        return
    if tables:
        show(*tables)
    print_lines(end)


def print_lines(text: str) -> None:
    """Print lines; on a terminal long ones are broken between words."""
    if sys.stdout.isatty():
        text = "\n".join(broken(line, get_terminal_size().columns) for line in text.split("\n"))
    echo(text, nl=bool(text))


def echo(text: str = "", nl: bool = True) -> None:
    """Print text, of which a terminal obeys nothing: it may quote a task, a model or a program."""
    typer.echo(printable_lines(text), nl=nl)


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
