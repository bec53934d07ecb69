"""What the judge and a test worker say to each other. A worker runs the data set's code, so what it
says is not trusted.

Zygotes import this file, so it imports little.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

SETUP = "the task's setup fails: "
UNASKED = "this test asks nothing of the program"
LEFT_OUT = "left_out"
"""How a test has ended that is no check here, since it is marked as skipped or expected to fail. It
stays in the worker."""
PYTEST_SESSION = "assay.judge.pytest_session"
"""What a worker has loaded that runs tests by pytest."""
LOADED = tuple(f"assay.judge.kinds.{name}" for name in ("asserts", "calls", "test_functions"))
"""The files of kinds that a worker has loaded before it gets a job. A job brings those of others.
"""
ARGUMENTS, OBJECTS, SUBCLASSES = "arguments", "objects", "subclasses"
"""What `WorkerReport.changes` says where the program has changed an argument, and where the test
had a stand-in for an object of the program's, or plain data or an exception of Python's for one of
a class of the program's."""
ARRAYS, ALIASES = "arrays", "aliases"
"""And where it has misused a value of Python's which the program has answered as one of numpy's,
and where two of its values are one object in the program."""
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
    kinds: dict[str, str]
    """The text of each such module that is none of LOADED."""
    stop_early: bool
    large: bool
    """Whether answers are digests where they are too large to be sent."""
    numpy: bool
    """Whether what the program returns may be a value of numpy's; else it becomes Python's."""
    identity: bool
    """Whether the tests may look at the identity of objects where that is not noticed."""
    classes: list[list[str]]
    """Name and source of each class of the setup that the program has too; a source without a name
    is of imports."""
    requested_names: list[str] | None
    """The names in the tests that the program is asked to define; None where nobody can tell."""
    imports: dict[str, str]
    """By name, the reference's import of it: what the tests mean, if they do not define it."""
    files: bool
    """Whether test and program share files."""
    objects: bool
    """Whether the test has the program's objects; else an object in an answer is opaque."""
    aliases: bool
    """Whether what is one object in the program is one in the test."""
    subclasses: bool
    """Whether instances of subclasses of data that can change are such objects."""
    doubt: str
    """Why a test that fails cannot be judged; empty where it can."""
    mutates: bool
    """Whether what a program changes in a test's objects is changed there."""
    reply_mb: int


class Outcome(NamedTuple):
    """How one check or a whole program ended, with one line of detail."""

    how: str
    """`held`, a key of verdict.FAILURES, for a check `unasked` (it asked the program nothing), or
    as a failure for good: `hung_up`, `unsendable` (the check does what cannot be carried) or
    `reference` (the reference fails in the worker)."""
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
