"""What a kind of test judges with: the few things that it can do with a program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol

from assay.languages import Language
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.program import Ended, Pool, Result
from assay.types import Execution, Verdict

Test = Callable[[], Awaitable[Execution]]
"""Judges one of a task's checks."""


class Run(NamedTuple):
    """What came of a program, before anything is compared."""

    execution: Execution
    """PASS where it exited with status 0. `output` and `stderr` hold what it wrote."""
    compiled: Execution | None = None
    """The same of its compiler; None where nothing is compiled."""
    result: Result = Result(Ended.EXITED)
    """What it printed and made, which may be any bytes."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that were to be fetched and that it made."""
        return self.result.files


class Workbench(Protocol):
    """Runs programs of one task with its limits. Each method raises SandboxError where the judge is
    broken, DataError where a tool is not installed.
    """

    language: Language
    """The task's."""
    stop_early: bool
    """Whether to stop at the first check that fails."""

    async def run(
        self, source: str, stdin: str = "", *, beside: str = "",
        files: Mapping[str, str] | None = None, fetch: tuple[str, ...] = (),
        language: Language | None = None, pool: Pool | None = None,
    ) -> Run:  # fmt: skip
        """Runs a program with the command of its language, in a folder that is new.

        beside: the text of another source file of the language's. files: more files, by paths.
        fetch: files that the program makes, for `Run.files`. language: in place of the task's.
        pool: whose processes run the source, as Python, in place of a language's command.
        """

    async def run_once(self, source: str, stdin: str, pool: Pool) -> Run:
        """Runs a script that is the data set's or ours once for all programs, with time to
        spare.
        """

    async def test(self, program: str) -> Execution:
        """Runs the checks in a worker, which calls the program (`InWorker`)."""

    async def answers(self, program: str) -> tuple[Execution, list[str]]:
        """Runs as `test`, and also returns JSON of what the program answers to calls without an
        expected value.
        """

    async def compare(self, run: Run, expected: str, stdin: str = "") -> Execution:
        """Says whether a program that ran well has printed what is expected, as the task's checker
        says. The checker gets the program's input too.
        """

    def box(self, spec: BoxSpec) -> AbstractAsyncContextManager[Box]:
        """Opens a box, in which commands run one after another, until the block ends. Raises
        SandboxError where the machine fails it; the kind then judges once more.
        """

    async def in_turn(self, tests: Mapping[int, Test]) -> Execution:
        """Returns one execution of several checks, by their numbers. They are judged in this order
        where it stops early.
        """


async def decided(run: Run, decide: Callable[[Result], Execution]) -> Execution:
    """What `decide` makes of a program that ran well, with what it printed and used. It runs in a
    thread of this process, and must withstand any bytes.
    """
    if run.execution.verdict is not Verdict.PASS:
        return run.execution
    return ruled(run, await asyncio.to_thread(decide, run.result))


def ruled(run: Run, decision: Execution) -> Execution:
    """A decision with what its program printed and used."""
    return replace(
        run.execution, verdict=decision.verdict, detail=decision.detail, cause=decision.cause,
        passed=decision.passed, total=decision.total, tests=decision.tests,
    )  # fmt: skip
