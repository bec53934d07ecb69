"""assay doctor: shows what this machine can do, or an endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError

SelfTest = Annotated[bool, typer.Option("--self-test", help="Run a program of each language too.")]


def doctor(
    self_test: SelfTest = False,
    endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Examine an OpenAI-compatible endpoint instead, up to /v1."
        ),
    ] = "",
    model: Annotated[
        str, typer.Option(help="A model of the endpoint; by default the first that it lists.")
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Attack the sandbox and show the isolation of this machine, its languages, tools, versions
    and GPUs.

    With --endpoint, check whether an endpoint returns the token ids and log-probabilities that
    training needs. The exit code is 1 if it does not.
    """
    if endpoint:
        _examine_endpoint(endpoint, model, self_test, as_json)
        return
    if model:
        raise SettingsError("--model is a model of an endpoint; name that with --endpoint URL")
    from assay import doctor as examination

    machine = examination.examine(self_test)
    options.print_result(examination.as_dict(machine), as_json, [examination.render(machine)])


def _examine_endpoint(url: str, model: str, self_test: bool, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from assay.endpoint_check.examine_endpoint import as_json as plain
    from assay.endpoint_check.examine_endpoint import examine_endpoint
    from assay.sync import run_sync
    from assay.types import printable

    if self_test:
        raise SettingsError("--self-test is of this machine: leave it out, or --endpoint")
    examination = run_sync(examine_endpoint(url, model))
    table = Table(box=None, pad_edge=False)
    for title in ("property", "", "evidence", "what to do"):
        table.add_column(title)
    for row in examination.rows:
        cells = (row.name, row.answer, row.evidence, row.advice)
        table.add_row(*(Text(printable(cell)) for cell in cells))  # Text obeys no markup
    options.print_result(plain(examination), as_json, [table], examination.use)
    if not examination.can_train:
        raise typer.Exit(1)
