"""assay doctor: shows what this machine can do."""

from __future__ import annotations

from assay.commands import options


def doctor(as_json: options.Json = False) -> None:
    """Show the isolation that this machine allows (tested by attacks), tools, versions and GPUs."""
    from assay import doctor as examination

    machine = examination.examine()
    options.print_result(examination.as_dict(machine), as_json, [examination.render(machine)])
