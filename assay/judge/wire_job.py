"""One job on its way to the supervisor: what that needs to know of it, then bytes which it forwards
unread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

HEAD = struct.Struct("!fBi")
NO_STDIN = -1
INTERPRETER = "interpreter"
ZYGOTES = ("plain", "numpy", INTERPRETER)
"""Kinds of warm process that a job may ask for."""
SESSION = struct.Struct("!I")
"""Begins the payload of code for an interpreter: the number of the order that opened it, or 0 for a
new one."""


@dataclass(frozen=True, slots=True)
class WireJob:
    """A job as it is sent."""

    payload: bytes
    """What the test worker is to do."""
    time_factor: float = 1.0
    """How many times the usual time limits it has."""
    zygote: str = "plain"
    stdin: bytes | None = None
    """What the program reads; None where it is not run for what it prints."""

    def packed(self) -> bytes:
        """As a frame."""
        size = NO_STDIN if self.stdin is None else len(self.stdin)
        return (
            HEAD.pack(self.time_factor, ZYGOTES.index(self.zygote), size)
            + (self.stdin or b"")
            + self.payload
        )


def unpacked(frame: bytes) -> WireJob:
    """The order of a frame that the trainer's side has packed."""
    time_factor, zygote, size = HEAD.unpack_from(frame)
    end = HEAD.size + max(size, 0)
    stdin = None if size == NO_STDIN else frame[HEAD.size : end]
    return WireJob(frame[end:], time_factor, ZYGOTES[zygote], stdin)
