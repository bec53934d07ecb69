"""Statements of tasks: the program does what the text says, with the bug and without it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from typer.testing import CliRunner

from assay.cli import app
from assay.judge import Judge
from assay.judge.kinds.repository import interpreter, shown_spec_of
from assay.tasks import load
from assay.types import RepositoryTests, Task
from tests.make_tasks.test_make_tasks import SMALL, write


async def printed(task: Task, bug: bool, code: str) -> tuple[str, str]:
    """What a program prints in the tree of a task, and the end of its errors."""
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    python, packages, _ = interpreter(check)
    variables = {"PYTHONPATH": ":".join([".", *packages])}
    spec = await shown_spec_of(check)
    async with Judge(slots=1, allow_forgeable=True) as judge, judge.box(spec) as box:
        if not bug:
            assert task.reference
            applied = await box.run(("git", "apply", "-"), stdin=task.reference.encode())
            assert applied.status == 0
        result = await box.run((*python, "-c", code), environment=variables, wall_seconds=60)
    return result.stdout.decode(), result.stderr.decode()


def claims(prompt: str, verb: str) -> tuple[str, str]:
    """What a statement says of its program: its output, or its exception."""
    say = re.search(
        rf"It {verb}(print|fail)s?(?: with)?:\n\n(`{{3,}})\n(.*?)\n?\2\n", prompt, re.DOTALL
    )
    assert say
    return (say[3], "") if say[1] == "print" else ("", say[3])


def is_as_claimed(claim: tuple[str, str], result: tuple[str, str]) -> bool:
    """Whether a program did what is claimed; a path of an exception's class may be longer there."""
    output, error = claim
    if error:
        return result[1].rstrip().endswith(error.partition(".")[2] or error)
    return result[0].rstrip() == output.rstrip()


def test_a_statement_s_program_does_what_it_says_in_both_trees(tmp_path: Path) -> None:
    package, output = write(tmp_path / "kit", **SMALL), tmp_path / "out"
    words = ["make-tasks", str(package), "--output", str(output), "--count", "1", "--json"]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert json.loads(ran.stdout)["kept"] == 1
    (task,) = load(str(output / "tasks.jsonl"))
    assert "test_" not in task.prompt
    code = re.search(r"```python\n(.*print\(repr.*?)\n```", task.prompt, re.DOTALL)
    assert code
    actual, expected = claims(task.prompt, ""), claims(task.prompt, "should ")
    assert actual != expected
    assert is_as_claimed(actual, asyncio.run(printed(task, True, code[1])))
    assert is_as_claimed(expected, asyncio.run(printed(task, False, code[1])))
