"""assay doctor: shows what this machine can do."""

from __future__ import annotations

import json

import typer

from assay.commands import options


def doctor(as_json: options.Json = False) -> None:
    """Show the isolation that this machine allows (tested by attacks), tools, versions and GPUs."""
    from assay import doctor as examination

    machine = examination.examine()
    if as_json:
        typer.echo(json.dumps(examination.as_dict(machine)))
    else:
        options.show(examination.render(machine))
