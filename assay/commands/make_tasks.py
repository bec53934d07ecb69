"""assay make-tasks: makes tasks of repositories from packages whose tests pass."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.errors import DataError, SettingsError
from assay.make_tasks.settings import REGRESSION_TESTS, BugOrigin, MakeSettings
from assay.progress import Progress, cell, counted

if TYPE_CHECKING:
    from rich.table import Table

    from assay.make_tasks.history import CommitHistory
    from assay.make_tasks.maker import Maker

Packages = Annotated[
    list[str],
    typer.Argument(
        metavar="PACKAGE...",
        help="h11 or h11==0.16.0 (by pip), a .tar.gz file, a folder, a git repository (PATH or"
        " PATH@COMMIT).",
    ),
]
PytestArguments = Annotated[
    str,
    typer.Option(
        help="Arguments of pytest, as a shell splits them: '-p asyncio --doctest-modules'. Each"
        " task keeps them."
    ),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        help="Load this plug-in of pytest, named by its entry point or module. No other is loaded."
        " Repeat for more.",
    ),
]
Url = Annotated[
    str,
    typer.Option(
        help="URL of an OpenAI-compatible endpoint that words the statements, and writes bugs if"
        " --bugs says so. It ends in /v1, and OPENAI_API_KEY has its key."
    ),
]
Bugs = Annotated[
    BugOrigin,
    typer.Option(
        metavar="ORIGIN",
        help="Who makes the bugs. `operators` change the syntax tree. A model edits functions, or"
        " rewrites them from head and docstring; both need --url and --model. `commits` takes the"
        " bugs that commits of a git repository repaired.",
    ),
]
NoReword = Annotated[bool, typer.Option("--no-reword", help="Keep the statements as they are.")]


def make_tasks(
    packages: Packages,
    output: Annotated[Path, typer.Option(help="The new folder for tasks.jsonl and the trees.")],
    count: Annotated[int, typer.Option(min=1, help="Tasks of each package.")] = 30,
    seed: Annotated[int, typer.Option(help="Decides which bugs are tried, in which order.")] = 0,
    environment: Annotated[
        Path | None,
        typer.Option(help="A virtual environment with pytest and what else the tests need."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="Most seconds for all tests of a package.")
    ] = 120.0,
    pytest_arguments: PytestArguments = "",
    plugins: Plugins = None,
    reference_runs: options.ReferenceRuns = 2,
    regression_tests: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many tests of a task must go on passing at most (pass_to_pass). Half of"
            " them come from the files of failing tests.",
        ),
    ] = REGRESSION_TESTS,
    url: Url = "",
    model: Annotated[str, typer.Option(help="The endpoint's model.")] = "",
    bugs: Bugs = "operators",
    no_reword: NoReword = False,
    slots: options.Slots = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Make repair tasks from Python packages. It puts bugs into packages whose tests pass, or takes
    bugs that commits repaired. Ctrl-C and SIGTERM keep the tasks that are finished.
    """
    from assay.judge import Judge
    from assay.make_tasks import asking
    from assay.make_tasks.packages import make_tasks as make
    from assay.sync import run_sync, termination_interrupts

    _require_model(url, model, bugs)
    if environment:
        _require_python(environment)
    arguments = _arguments(plugins or [], pytest_arguments)
    judge = Judge(slots=slots, allow_weak=allow_weak, stop_early=False, allow_forgeable=True)
    model_asked = asking.open_asking(url, model, judge.slots)
    makers: list[Maker | CommitHistory] = []
    refused: dict[str, str] = {}
    settings = MakeSettings(
        output, count, seed, seconds, environment, arguments, reference_runs, regression_tests,
        bugs, not no_reword,
    )  # fmt: skip
    try:
        with termination_interrupts(), options.quietly("assay.judge"), Progress() as progress:
            run_sync(make(
                packages, makers, refused, progress, judge, model_asked, settings
            ))  # fmt: skip
    finally:
        _print([maker.report() for maker in makers], refused, output, as_json)
    if refused:
        raise DataError(_refusals(refused, len(packages)))


def _require_model(url: str, model: str, bugs: BugOrigin) -> None:
    """Raises SettingsError where an endpoint is named by half, or bugs need one."""
    if bool(url) != bool(model):
        raise SettingsError("--url and --model go together; give both or neither")
    if bugs in ("edits", "rewrites") and not url:
        raise SettingsError(f"--bugs {bugs} needs a model; give its --url and --model")


def _arguments(plugins: list[str], arguments: str) -> tuple[str, ...]:
    """The arguments of pytest. Raises SettingsError."""
    try:
        return (*(word for name in plugins for word in ("-p", name)), *shlex.split(arguments))
    except ValueError as error:
        raise SettingsError(f"--pytest-arguments {arguments!r}: {error}") from None


def _print(
    reports: list[dict[str, Any]], refused: Mapping[str, str], output: Path, as_json: bool
) -> None:
    """The table of all packages that bugs were put into, and which tests were left out."""
    if not reports:
        return
    count = sum(report["kept"] for report in reports)
    flaky = [f"{report['package']}: flaky, left out: {', '.join(report['flaky'])}"
             for report in reports if "flaky" in report]  # fmt: skip
    slow = [f"{report['package']}: too slow, left out: {counted(report['slow'], 'test')}; others"
            " take half of --seconds" for report in reports if "slow" in report]  # fmt: skip
    forked = [f"{report['package']}: its tests depend on each other: each ran in its own process"
              for report in reports if not report["one_process"]]  # fmt: skip
    end = (
        f"kept {counted(count, 'task')} in {output / 'tasks.jsonl'}"
        if count
        else "no task was kept"
    )
    result = {"kept": count, "packages": reports, "refused": dict(refused)}
    options.print_result(
        result, as_json, [_table(reports)], "\n".join(["", *flaky, *slow, *forked, end])
    )


def _require_python(environment: Path) -> None:
    """Raises SettingsError where a folder is no virtual environment."""
    if not environment.is_dir():
        raise SettingsError(f"--environment {environment} is no folder; name one that exists")
    if not (environment / "bin" / "python").exists():
        raise SettingsError(
            f"--environment {environment} has no bin/python; make it with `python -m venv`"
        )
    if not any(environment.glob("lib/python*/site-packages/pytest")):
        shared = (environment / "pyvenv.cfg").is_file() and "system-site-packages = true" in (
            environment / "pyvenv.cfg"
        ).read_text(errors="replace")
        if not shared:
            raise SettingsError(
                f"--environment {environment} has no pytest; install it there:"
                f" {environment}/bin/python -m pip install pytest"
            )


def _refusals(refused: Mapping[str, str], count: int) -> str:
    """One line that names each package of which no task can be made, and why."""
    reasons = "; ".join(refused.values())
    return reasons if count == 1 else f"{len(refused)} of {count} packages are refused: {reasons}"


def _table(reports: list[dict[str, Any]]) -> Table:
    """A row for each package, with the reasons why bugs were not kept."""
    from rich.table import Table

    titles = "package", "kept", "tried", "sites", "tests", "seconds"
    others = {*titles, "flaky", "slow", "one_process"}
    table = Table(*titles, "left out", box=None, pad_edge=False)
    for report in reports:
        fates = {name: count for name, count in report.items() if name not in others}
        reasons = [f"{count} {name}" for name, count in fates.items()]
        table.add_row(*(cell(report[title]) for title in titles), cell(", ".join(reasons)))
    return table
