"""The command line: builds it from the files in commands/, and turns every error into one line."""

import inspect
import io
import logging
import os
import re
import sys
import warnings
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer
from typer.exceptions import TyperException

from assay.commands import options
from assay.commands.check import check
from assay.commands.compare import compare
from assay.commands.demonstrate import demonstrate
from assay.commands.doctor import doctor
from assay.commands.evaluate import evaluate
from assay.commands.export import export
from assay.commands.grade import grade
from assay.commands.list import list_plugins
from assay.commands.make_tasks import make_tasks
from assay.commands.overlap import overlap
from assay.commands.plan import plan
from assay.commands.sample import sample
from assay.commands.screen import screen
from assay.commands.serve import serve
from assay.commands.serve_policy import serve_policy
from assay.commands.show import show
from assay.commands.show_prompt import show_prompt
from assay.commands.train import train
from assay.commands.view import view
from assay.errors import AssayError, UserError
from assay.extras import advice_on
from assay.os_errors import PATH_ERRORS
from assay.os_errors import advice as advice_on_path
from assay.progress import StderrHandler, broken
from assay.registry import one_line, plugin_line
from assay.tuning import set_variables
from assay.types import printable

HELP = {"help_option_names": ["-h", "--help"]}
OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
app = typer.Typer(name="assay", pretty_exceptions_enable=False, context_settings=HELP)
for command, settings, example in (  # in the order of use
    (doctor, {}, "doctor"),
    (list_plugins, {}, "list rewards"),
    (make_tasks, {}, "make-tasks tinydb --output tasks --count 30"),
    (check, {}, "check my_tasks.jsonl --output sound.jsonl"),
    (demonstrate, {}, "demonstrate tasks/tasks.jsonl --out shown.jsonl --samples 4"),
    (overlap, {}, "overlap my_tasks.jsonl humaneval"),
    (screen, OVERRIDES, "screen smollm2 sound.jsonl --output learnable.jsonl"),
    (sample, OVERRIDES, "sample smollm2 learnable.jsonl --output passing.jsonl"),
    (show_prompt, OVERRIDES, "show-prompt mine.toml"),
    (plan, OVERRIDES, "plan mine.toml"),
    (train, OVERRIDES, "train mine.toml --optimizer.lr 1e-5 --seeds 0..2"),
    (show, {}, "show runs/mine"),
    (view, {}, "view runs"),
    (evaluate, OVERRIDES, "eval --model runs/mine --tasks humaneval --samples 4"),
    (compare, {}, "compare runs/first runs/second"),
    (export, {}, "export runs/mine exported"),
    (grade, {}, "grade --tasks humaneval --samples samples.jsonl"),
    (serve, {}, "serve --port 8000"),
    (serve_policy, {}, "serve-policy runs/mine"),
):  # fmt: skip
    name = example.split()[0]
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(part.split()) for part in paragraphs)  # the terminal breaks lines
    app.command(
        name, cls=options.LegibleCommand, context_settings=settings, help=text,
        epilog=f"Example: assay {example}",
    )(options.paths_at_home(command))  # fmt: skip


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


@app.callback()
def assay(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Make code models better at passing real tests."""
    if os.environ.get("RANK", "0") != "0" and context.invoked_subcommand != "train":
        raise typer.Exit  # of the ranks of torchrun, the first does it for all


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a strict check dropped tasks, training and
    benchmark overlap, an endpoint cannot serve training, or nobody reads the output, 2 the user's
    error, 3 the machine's, 130 Ctrl-C.
    """
    _open_standard_streams()
    set_variables()
    warnings.filterwarnings(
        "ignore", category=SyntaxWarning, module="<unknown>"
    )  # of data sets' code
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", handlers=[StderrHandler()])
    try:
        try:
            code = app(sys.argv[1:] or ["--help"], prog_name="assay", standalone_mode=False)
        finally:
            typer.echo(nl=False)  # flush now: later errors would be a traceback
    except Exception as error:  # the end of the program: whatever has one line is printed as that
        line, code = explain(error)
        if not line:
            raise
        line = f"assay: {printable(' '.join(line.split()))}"
        if sys.stderr.isatty():
            line = broken(line, get_terminal_size().columns)
        sys.stderr.write(f"{line}\n")
    sys.exit(code)


def _open_standard_streams() -> None:
    """Open those that the caller has closed (`>&-`), before another file takes their number; and
    print `?` for what their encoding lacks.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def explain(error: Exception) -> tuple[str, int]:
    """What went wrong in one line, and the exit code; no line for a defect of assay, which shows
    its traceback.
    """
    line, code = "", 2
    place = plugin_line(error) or plugin_line(error.__cause__)
    if isinstance(error, AssayError):
        line, code = str(error), 2 if isinstance(error, UserError) else 3
    elif isinstance(error, TyperException):
        context: typer.Context | None = getattr(error, "ctx", None)
        message = error.format_message().replace(". Did", "; did").replace("Input should", "must")
        message = re.sub(r" \(Possible options: (.*)\)", r"; did you mean \1?", message)
        message = re.sub(r", unable to .*", "", message).removesuffix(".")
        usage = f"; see `{context.command_path if context else 'assay'} --help`"
        if context and hasattr(error, "param_type"):  # of a missing parameter alone
            usage = f"; {options.example(context)}"
        line = message[:1].lower() + message[1:] + ("" if message.endswith("?") else usage)
    elif advice := advice_on(error):
        line = advice
    elif place:
        line = one_line(error)
    elif isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        line = f"{error.strerror or one_line(error)}{where}; {advice_on_path(error)}"
        code = 2 if error.errno in PATH_ERRORS else 3
    return line if place in line else f"{place}: {line}", code
