"""What the judge's processes say to each other: jobs, marks and reports.

A candidate process is not trusted. A worker runs the data set's code and is not trusted either.
Zygotes import this file, so it imports little.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypedDict

INTERPRETER = "interpreter"
ZYGOTES = ("plain", "numpy", INTERPRETER)
"""Kinds of zygote that a job may ask for."""
SESSION = struct.Struct("!I")
"""Starts the payload of code for an interpreter: the number of the job that opened it, 0 for a
new one."""
START = b"."
"""The byte that carries descriptors; no frame starts with it."""
DONE, RAISED = b"+", b"!"
"""What an interpreter says of a block: it ran to its end; it raised. The state is kept."""
UNSENDABLE = "this test passes a "
"""Starts the detail of an `unsendable` outcome."""
UNASKED = "this test asks nothing of the program"
"""Starts the detail of an `unasked` outcome."""
_HEAD = struct.Struct("!fB?i")
_NO_STDIN = -1


class WireJob(NamedTuple):
    """One job on its way to the supervisor, which forwards `payload` unread."""

    payload: bytes
    """JSON for the worker, or code for an interpreter."""
    time_factor: float = 1.0
    """Multiplies the time limits."""
    zygote: str = "plain"
    stdin: bytes | None = None
    """What a program that reads and prints reads; None for a function."""
    keeps_worker: bool = False
    """Whether the task's code can change nothing in the worker, which may then take another job."""

    def pack(self) -> bytes:
        """The job as a frame."""
        size = _NO_STDIN if self.stdin is None else len(self.stdin)
        head = _HEAD.pack(self.time_factor, ZYGOTES.index(self.zygote), self.keeps_worker, size)
        return head + (self.stdin or b"") + self.payload


def unpack_job(frame: bytes) -> WireJob:
    """The job of a frame made by `WireJob.pack`."""
    time_factor, zygote, keeps_worker, size = _HEAD.unpack_from(frame)
    end = _HEAD.size + max(size, 0)
    stdin = None if size == _NO_STDIN else frame[_HEAD.size : end]
    return WireJob(frame[end:], time_factor, ZYGOTES[zygote], stdin, keeps_worker)


class CheckJob(TypedDict):
    """Payload for a worker: check a function."""

    program: str
    entry_point: str
    setup: str
    checker: str
    checks: list[Any]
    """Sources of checks, and calls as [arguments, [expected] or None, tolerance]."""
    order: list[int]
    """Numbers of the checks in the order in which to run them."""
    stop_early: bool
    features: list[bool]
    """Of the task's ProxyFeatures: mutates, handles, callbacks."""
    reply_mb: int


class ExchangeJob(TypedDict):
    """Payload for a worker: run a program once and check what it prints."""

    program: str
    expected: str | None
    """None where any output is right."""
    checker: str
    reply_mb: int
    printed_mb: int
    output_kb: int


class Outcome(NamedTuple):
    """How one check or a whole program ended, with one line of detail."""

    how: str
    """`held`, a key of verdict.FAILURES, for a check `unasked` (it asked the program nothing), or
    as a failure of the program: `hung_up` or `unsendable` (it passes what cannot be sent)."""
    detail: str = ""


class WorkerReport(NamedTuple):
    """What a worker reports of one job."""

    checks: list[Outcome]
    """One for each check that ran."""
    failure: Outcome | None = None
    """How the program failed for good."""
    setup_error: str = ""
    """What the data set's own setup or checker raised."""
    output: str | None = None
    """What a program that reads and prints printed; None for a function."""
    answers: list[str] = []  # noqa: RUF012  never changed
    """JSON of the answers to calls without an expected value."""
    awaits_exit: bool = False
    """Whether the program must still exit by itself, with status 0."""

    @property
    def failed_by(self) -> str:
        """`failure.how`; empty where the program did not fail for good."""
        return self.failure.how if self.failure else ""


class JobResult(NamedTuple):
    """What the supervisor answers to a job: the fields of an Execution, and a reference's
    answers.
    """

    number: int
    execution: dict[str, Any]
    answers: list[str]


class BlockResult(NamedTuple):
    """What the supervisor answers to a block of code for an interpreter."""

    number: int
    ended: str
    """`done`, `error`, `timeout`, `memory`, `output`, `died` or `infra`."""
    output: str
    detail: str
    """Why the interpreter ended, in one line; empty where it goes on."""


class SupervisorSettings(NamedTuple):
    """The first frame to a supervisor."""

    limits: dict[str, Any]
    """The fields of Limits."""
    slots: int
    required: list[str]
    """Walls that every zygote must put up."""
