"""What the sandbox runs, and what came of it: the data between the trainer and the supervisor."""

from __future__ import annotations

import json
import struct
from enum import StrEnum
from typing import Any, NamedTuple

INTERPRETER = "interpreter"
ZYGOTES = ("plain", "numpy", INTERPRETER)
"""Kinds of zygote that a program may ask for."""
SESSION = struct.Struct("!I")
"""Starts the payload of code for an interpreter: the number of the program that opened it, 0 for a
new one."""
_HEAD = struct.Struct("!fB?iI")
_NO_COMPANION = -1


class Program(NamedTuple):
    """One untrusted program on its way to the supervisor, which forwards its bytes unread.

    A program that stands alone is sent its `payload` and `stdin`, and prints. One with a companion
    gets nothing from us: the companion, a process of its own with more memory and time, gets a
    socket to it, talks with it and reports.
    """

    payload: bytes = b""
    """What it gets: the source of a script, or code for an interpreter."""
    stdin: bytes = b""
    companion: bytes | None = None
    """The companion's job; None for a program that stands alone."""
    keeps_companion: bool = False
    """Whether the job can change nothing in the companion, which may then take another."""
    zygote: str = "plain"
    time_factor: float = 1.0
    """Multiplies the time limits."""

    def pack(self) -> bytes:
        """The program as a frame."""
        size = _NO_COMPANION if self.companion is None else len(self.companion)
        kind = ZYGOTES.index(self.zygote)
        head = _HEAD.pack(self.time_factor, kind, self.keeps_companion, size, len(self.stdin))
        return head + (self.companion or b"") + self.stdin + self.payload


def unpack_program(frame: bytes) -> Program:
    """The program of a frame made by `Program.pack`."""
    time_factor, kind, keeps, size, stdin_size = _HEAD.unpack_from(frame)
    stdin_at = _HEAD.size + max(size, 0)
    payload_at = stdin_at + stdin_size
    companion = None if size == _NO_COMPANION else frame[_HEAD.size : stdin_at]
    stdin, payload = frame[stdin_at:payload_at], frame[payload_at:]
    return Program(payload, stdin, companion, keeps, ZYGOTES[kind], time_factor)


class Ended(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself, with the exit status."""
    CRASHED = "crashed"
    """By a signal that it caused."""
    RUNNING = "running"
    """It still ran when its companion was done with it."""
    CLOSED = "closed"
    """It ran on, but had closed its channel to the companion."""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    PRINTED = "printed"
    """It was stopped at this limit."""
    LOST = "lost"
    """The machine ended it, its companion or its zygote."""


class Result(NamedTuple):
    """What came of one program."""

    ended: Ended
    detail: str = ""
    """Why, in one line for people."""
    status: int = 0
    """Its exit status where it exited."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    memory_mb: float = 0.0
    """Peak resident memory in MiB."""
    report: bytes = b""
    """What the companion reported; for a program that stands alone, why it could not start."""
    stdout: bytes = b""
    """What a program that stands alone wrote to standard output."""
    stderr: bytes = b""
    """The beginning of what it wrote to standard error; with a companion, to both streams."""

    def pack(self) -> tuple[list[Any], bytes]:
        """The result as JSON, and the bytes to send after it."""
        blobs = (self.report, self.stdout, self.stderr)
        return [*self[:-3], *map(len, blobs)], b"".join(blobs)


def unpack_result(fields: list[Any], blob: bytes) -> Result:
    """The result that was packed so."""
    ended, *used, report, stdout, _ = fields
    stdout += report
    cuts = blob[:report], blob[report:stdout], blob[stdout:]
    return Result._make([Ended(ended), *used, *cuts])


class BlockResult(NamedTuple):
    """What the supervisor answers to a block of code for an interpreter."""

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
    zygote: str
    """The module that a zygote runs: it gets a descriptor and its kind as arguments."""


def message(*parts: object, blob: bytes = b"") -> bytes:
    """A frame from the supervisor: a line of JSON, then any bytes."""
    return json.dumps(parts).encode() + b"\n" + blob


def read_message(frame: bytes) -> tuple[list[Any], bytes]:
    """The parts of a frame made by `message`."""
    line, _, blob = frame.partition(b"\n")
    return json.loads(line), blob
