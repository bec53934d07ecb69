"""Frames between the test worker and the candidate: a length, then JSON; one reply for each
request, by its number.

Before its first reply the candidate's side writes one byte, a mark, while no line of the program
has run.
"""

from __future__ import annotations

import socket
import struct

HEADER = struct.Struct("!I")
CHUNK = 65_536
START = b"."
"""Brings descriptors; no frame begins with it."""
MIB = 1024 * 1024
DONE, RAISED = b"+", b"!"
"""What an interpreter says of a block of code: it came to its end; it raised. Its state is kept."""
REUSABLE, NOT_REUSABLE, REFUSED = b"+", b"-", b"~"
"""Marks: the program leaves its process as it was; it may not; it may not, and is not run since
another was before."""


class ClosedError(Exception):
    """The other side is gone."""


class OversizedError(Exception):
    """The other side announced a frame over the limit."""


class UnaskedError(Exception):
    """The other side wrote what nobody asked for."""


class FramedSocket:
    """One end of a stream of frames, of up to `limit` bytes each."""

    def __init__(self, stream: socket.socket, limit: int) -> None:
        self.stream = stream
        self.limit = limit

    def begin(self, stdin: int, stdout: int) -> None:
        """Say that frames follow of a program that reads and prints, and hand over its two streams.

        Raises ClosedError, or OSError where the machine has no room for descriptors under way.
        """
        try:
            socket.send_fds(self.stream, [START], [stdin, stdout])
        except ConnectionError:
            raise ClosedError from None

    def mark(self, mark: bytes) -> None:
        """Write the one byte that comes before the first reply. Raises ClosedError."""
        try:
            self.stream.sendall(mark)
        except OSError:
            raise ClosedError from None

    def marked(self) -> bytes:
        """Read that byte. Raises ClosedError."""
        return self._read(1)

    def send(self, frame: bytes) -> None:
        """Write one frame. Raises ClosedError."""
        try:
            self.stream.sendall(HEADER.pack(len(frame)) + frame)
        except OSError:
            raise ClosedError from None

    def receive(self) -> bytes:
        """Read one frame. Raises ClosedError, OversizedError, and UnaskedError where more than one
        frame has come.
        """
        first = self._read(CHUNK)
        while len(first) < HEADER.size:
            first += self._read(CHUNK)
        (length,) = HEADER.unpack_from(first)
        if length > self.limit:
            raise OversizedError(f"a reply of {length / MIB:.1f} MiB")
        body = first[HEADER.size :]
        if len(body) < length:
            body = self._rest(body, length)
        if len(body) > length:
            raise UnaskedError
        return body

    def quiet(self) -> bool:
        """Whether nothing waits to be read. Raises ClosedError when the other side is gone."""
        try:
            waiting = self.stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            raise ClosedError from None
        if not waiting:
            raise ClosedError
        return False

    def _read(self, size: int) -> bytes:
        try:
            got = self.stream.recv(size)
        except OSError:
            raise ClosedError from None
        if not got:
            raise ClosedError
        return got

    def _rest(self, start: bytes, length: int) -> bytes:
        parts, size = [start], len(start)
        while size < length:
            parts.append(self._read(max(CHUNK, length - size)))
            size += len(parts[-1])
        return b"".join(parts)
