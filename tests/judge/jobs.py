"""Small tasks and programs for the judge's tests."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from assay.judge import Job, Judge
from assay.sandbox.program import Program, Result
from assay.sandbox.supervisor_client import Sandbox
from assay.types import Check, Execution, Task
from tests.judge.opened import with_judge

ADD = Task(
    id="add",
    prompt="Add two values.",
    checks=(
        Check("assert add(1, 2) == 3"),
        Check("assert add([1], [2]) == [1, 2]"),
        Check("assert add(0, 0) == 0"),
    ),
    entry_point="add",
    reference="def add(a, b): return a + b",
)
RIGHT = "def add(a, b): return a + b"


NUMBERS = itertools.count()


def add(program: str | None) -> Job:
    """A job like no other: the judge remembers what it has judged, and would not run the same
    program twice.
    """
    return Job(ADD, program if program is None else f"{program}\n# {next(NUMBERS)}")


def judged_in_turn(*jobs: Job) -> list[Execution]:
    """By one judge, one after the other."""

    async def run(judge: Judge) -> list[Execution]:
        return [await judge.run(job) for job in jobs]

    return with_judge(run)


def task(entry_point: str, *checks: str, setup: str = "", reference: str | None = None) -> Task:
    return Task(
        id=entry_point,
        prompt="",
        checks=tuple(map(Check, checks)),
        entry_point=entry_point,
        setup=setup,
        reference=reference,
    )


def programs_run(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that the sandbox runs from now on, as they are started."""
    programs: list[Program] = []
    run = Sandbox.run

    async def counted(sandbox: Sandbox, program: Program) -> Result:
        programs.append(program)
        return await run(sandbox, program)

    monkeypatch.setattr(Sandbox, "run", counted)
    return programs


def read_pairs(file: Path) -> dict[str, tuple[str, str, str, str]]:
    """By name, from a table: a note, a right program, a wrong one and the tests of both."""
    pairs = {}
    for block in re.split(r"^##### ", file.read_text(), flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        name, _, note = head.partition(" |")
        program, _, tests = body.partition("\n---\n")
        right, _, bug = program.rpartition("\n@ ")
        old, _, new = bug.replace("\\n", "\n").partition(" => ")
        assert right.count(old) >= 1, f"{name}: {old}"
        pairs[name] = note, right, right.replace(old, new, 1), tests
    return pairs
