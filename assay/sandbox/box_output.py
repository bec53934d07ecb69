"""What is kept of a process of a box: what it wrote, and how it ended."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from assay.sandbox import kernel
from assay.sandbox.program import Ended

CHUNK = 65_536
Stop = tuple[Ended, str]
"""How a process was ended, and why in one line."""
GIVEN_UP: Stop = (Ended.CRASHED, "whoever asked for it has given it up")


@dataclass(slots=True)
class Output:
    """What is kept of a stream."""

    descriptor: int
    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def read(self) -> bool:
        """Take what has come. False where nothing has, or at its end."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return False
        room = max(0, self.most // 2 - len(self.head))
        self.head += chunk[:room]
        self.tail += chunk[room:]
        excess = len(self.tail) - self.most // 2
        if excess > 0:
            self.left_out += excess
            del self.tail[:excess]
        return bool(chunk)

    def text(self) -> bytes:
        """All that is kept, with a line that says how much is not."""
        cut = b"\n(%d bytes are left out here)\n" % self.left_out if self.left_out else b""
        return bytes(self.head) + cut + bytes(self.tail)


def ending(code: int) -> Stop:
    """How a command ended by itself, by its exit code or the negative number of its signal."""
    if code < 0:
        return Ended.CRASHED, f"killed by {kernel.signal_name(-code)}"
    return Ended.EXITED, f"exited with status {code}" if code else ""
