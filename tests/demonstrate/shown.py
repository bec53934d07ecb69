"""A small repository with a bug as a row of a file, and what `assay demonstrate` makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from assay.cli import app
from assay.types import RepositoryTests
from tests.environments.repositories import repository

STATEMENT = (
    "`add` subtracts:\n\n```python\nfrom calc import add\n\nprint(add(1, 2))\n```\n\nIt prints -1."
)


def row(folder: Path, **fields: Any) -> dict[str, Any]:
    """The row of a repository in a new folder, with these fields."""
    task = repository(folder)
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    return {
        "id": task.id, "prompt": STATEMENT, "tree": check.tree, "reference": task.reference,
        "fail_to_pass": [*check.fail_to_pass], "pass_to_pass": [*check.pass_to_pass], **fields,
    }  # fmt: skip


def written(file: Path, *rows: Mapping[str, Any]) -> Path:
    """The file, which holds these rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return file


def ran(tasks: Path, out: Path, *words: str) -> Result:
    """The command, run."""
    return CliRunner().invoke(app, ["demonstrate", str(tasks), "--out", str(out), *words])


def demonstrated(tasks: Path, out: Path, *words: str) -> list[dict[str, Any]]:
    """The rows that the command writes, which is to succeed."""
    result = ran(tasks, out, *words)
    assert result.exit_code == 0, result
    return rows_of(out)


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def commands(shown: Mapping[str, Any]) -> list[str]:
    """The commands of a row, in order."""
    return [
        call["function"]["arguments"]["command"]
        for message in shown["messages"] for call in message.get("tool_calls", ())
    ]  # fmt: skip
