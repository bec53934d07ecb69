"""assay doctor: shows what this machine can do."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.commands import options

SelfTest = Annotated[bool, typer.Option(help="Run a program of each language too.")]


def doctor(self_test: SelfTest = False, as_json: options.Json = False) -> None:
    """Show the isolation that this machine allows (tested by attacks), languages, tools, versions
    and GPUs.
    """
    from assay import doctor as examination

    machine = examination.examine(self_test)
    options.print_result(examination.as_dict(machine), as_json, [examination.render(machine)])
