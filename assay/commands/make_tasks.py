"""assay make-tasks: makes tasks of repositories from packages whose tests pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table

    from assay.make_tasks.maker import Maker


def make_tasks(
    packages: Annotated[
        list[str],
        typer.Argument(
            metavar="PACKAGE...",
            help="h11 or h11==0.16.0 (by pip), a .tar.gz file, a folder, a git repository (PATH or"
            " PATH@COMMIT).",
        ),
    ],
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
    url: Annotated[
        str,
        typer.Option(
            help="An OpenAI-compatible endpoint, up to /v1, that words statements; its key is in"
            " OPENAI_API_KEY."
        ),
    ] = "",
    model: Annotated[str, typer.Option(help="The endpoint's model.")] = "",
    slots: options.Slots = None,
    allow_weak: options.AllowWeak = False,
    as_json: options.Json = False,
) -> None:
    """Make tasks of repositories: bugs put into packages whose tests pass. Ctrl-C keeps what is
    made.
    """
    from assay.judge import Judge
    from assay.make_tasks import maker, statement
    from assay.sync import run_sync

    if bool(url) != bool(model):
        raise SettingsError("--url and --model go together; give both or neither")
    if environment and not (environment / "bin" / "python").exists():
        raise SettingsError(f"--environment {environment} has no bin/python")
    judge = Judge(slots=slots, allow_weak=allow_weak, stop_early=False, allow_forgeable=True)
    wording = statement.open_wording(url, model, judge.slots)
    makers: list[Maker] = []
    try:
        with options.quietly("assay.judge"), Progress() as progress:
            run_sync(maker.make_tasks(
                packages, makers, progress, judge, wording, output=output, count=count, seed=seed,
                seconds=seconds, environment=environment,
            ))  # fmt: skip
    finally:
        reports = [maker.report() for maker in makers]
        if count_kept := sum(report["kept"] for report in reports):
            result = {"kept": count_kept, "packages": reports}
            end = f"\nkept {count_kept} tasks in {output / 'tasks.jsonl'}"
            options.print_result(result, as_json, [_table(reports)], end)


def _table(reports: list[dict[str, Any]]) -> Table:
    """A row for each package, with the reasons why bugs were not kept."""
    from rich.table import Table

    titles = "package", "kept", "tried", "sites", "tests", "seconds"
    table = Table(*titles, "left out", box=None, pad_edge=False)
    for report in reports:
        reasons = [f"{count} {name}" for name, count in report.items() if name not in titles]
        table.add_row(*(str(report[title]) for title in titles), ", ".join(reasons))
    return table
