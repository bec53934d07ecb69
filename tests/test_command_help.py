"""The help of commands can be read on a terminal of 80 columns."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from assay.cli import app


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("train", ["{CONFIG}"]),
        ("screen", ["{MODEL}", "{TASKS}"]),
        ("list", ["[KIND]"]),
        ("grade", []),
    ],
)
def test_the_help_calls_an_argument_as_its_sentences_do(command: str, names: list[str]) -> None:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    usage = next(line for line in done.stdout.splitlines() if "Usage:" in line)
    assert usage.split()[4:] == names


@pytest.mark.parametrize("command", ["eval", "grade", "check", "serve", "train", "make-tasks"])
def test_the_help_of_a_command_leaves_its_sentences_28_columns(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    (start,) = {line.index("Show this message") for line in lines if "Show this message" in line}
    assert 79 - start >= 28, "columns for the sentences"
    assert "--no-allow-weak" not in done.stdout
