"""What the judge and a test worker say to each other. A worker runs the data set's code, so what it
says is not trusted.

Zygotes import this file, so it imports little.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

CANNOT = "cannot be judged: "
"""Starts the detail of an `unsendable` outcome."""
FAILS_TOO = f"{CANNOT}the reference fails too: "
UNASKED = "this test asks nothing of the program"
"""Starts the detail of an `unasked` outcome."""
SETUP = "the task's setup fails: "
"""Starts the detail where the task is at fault."""
PROGRAM = ("candidate", "solution", "main", "__main__", "submission", "program", "your_module")
"""Names by which tests import the program."""


class CheckJob(TypedDict):
    """Payload for a worker: check a function."""

    program: str
    entry_point: str
    setup: str
    checker: str
    reference: str
    """Runs in the worker for expected values that are too large to send; else empty."""
    checks: list[Any]
    """Each as the module of its kind (judge/kinds) and what that makes of it."""
    stop_early: bool
    large: bool
    """Whether answers are digests where they are too large to be sent."""
    numpy: bool
    """Whether what the program returns may be a value of numpy's; else it becomes Python's."""
    identity: bool
    """Whether the tests look at the identity of objects."""
    classes: list[list[str]]
    """Name and source of each class of the setup that the program has too; a source without a name
    is of imports."""
    files: bool
    """Whether test and program share files."""
    objects: bool
    """Whether the test has the program's objects; else an object in an answer is opaque."""
    doubt: str
    """Why a test that fails cannot be judged; empty where it can."""
    mutates: bool
    """Whether what a program changes in a test's objects is changed there."""
    reply_mb: int


class Outcome(NamedTuple):
    """How one check or a whole program ended, with one line of detail."""

    how: str
    """`held`, a key of verdict.FAILURES, for a check `unasked` (it asked the program nothing), or
    as a failure of the program: `hung_up` or `unsendable` (it does what cannot be carried)."""
    detail: str = ""


class WorkerReport(NamedTuple):
    """What a worker reports of one job."""

    checks: list[Outcome]
    """One for each check that ran."""
    failure: Outcome | None = None
    """How the program failed for good."""
    setup_error: str = ""
    """What the data set's own setup or checker raised."""
    answers: list[str] = []  # noqa: RUF012  never changed
    """JSON of the answers to calls without an expected value."""
    forgeable: bool = False
    """Whether the checks rest on the program's word."""
    changes: list[str] = []  # noqa: RUF012  never changed
    """What of the test's the program has changed: `arguments`, or a file's name."""

    @property
    def failed_by(self) -> str:
        """`failure.how`; empty where the program did not fail for good."""
        return self.failure.how if self.failure else ""
