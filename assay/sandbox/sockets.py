"""How processes talk: frames over sockets, each after its length, which its reader bounds, and the
messages in frames. Workers, candidates and others with one partner block; who waits for several, as
the supervisor does, buffers; the trainer reads in its event loop.

It uses nothing but the standard library, and its text is sent where nothing of assay is installed.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

START = b"."
"""The byte that carries descriptors; no frame starts with it."""
HEADER = struct.Struct("!I")
MIB = 1 << 20
CHUNK = 65_536
TIMES = 12
"""Python specialises code after eight runs."""
PASSED = socket.CMSG_SPACE(16)
"""Room for four descriptors that come with a frame."""
LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
"""Flags of a look at what waits. Such flags take longer to combine than to use."""


class OversizedError(Exception):
    """The other side announced a frame over the limit."""


class UnaskedError(Exception):
    """The other side wrote more than one reply."""


def message(*parts: object) -> bytes:
    """A message: a line of JSON, in which each bytes object is its length, and then all of them."""
    blobs: list[bytes] = []

    def left_out(blob: bytes) -> dict[str, int]:
        blobs.append(blob)
        return {"": len(blob)}

    return b"".join([json.dumps(parts, default=left_out).encode(), b"\n", *blobs])


def read_message(frame: bytes) -> list[Any]:
    """The parts of what `message` made, in which a tuple has become a list."""
    line, _, blobs = frame.partition(b"\n")
    read = BytesIO(blobs).read
    return list(json.loads(line, object_hook=lambda it: read(it[""]) if it.keys() == {""} else it))


def framed(content: bytes) -> bytes:
    """The frame of a content."""
    return HEADER.pack(len(content)) + content


async def receive_frame(reader: StreamReader, most: int) -> bytes:
    """Read one frame. Raises OversizedError beyond `most` bytes, IncompleteReadError at the end."""
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > most:
        raise OversizedError(f"a frame of {length / MIB:.1f} MiB")
    return await reader.readexactly(length)


def send(writer: StreamWriter, *parts: object) -> None:
    """Write a message."""
    writer.write(framed(message(*parts)))


async def receive(reader: StreamReader, most: int) -> list[Any]:
    """The parts of the next message, of up to `most` bytes. Raises IncompleteReadError at the end,
    OversizedError.
    """
    return read_message(await receive_frame(reader, most))


class FramedSocket:
    """A blocking stream of frames of up to `limit` bytes, one reply for each request.

    Every method raises ConnectionError when the other side has hung up.
    """

    def __init__(self, stream: socket.socket, limit: int) -> None:
        self.stream = stream
        self.limit = limit

    def send(self, frame: bytes) -> None:
        """Write one frame."""
        self.stream.sendall(framed(frame))

    def receive(self) -> bytes:
        """Read one frame. Raises OversizedError, and UnaskedError where more than one has come."""
        return self._frame(self._read(CHUNK))

    def receive_next(self) -> bytes:
        """Read one frame, and nothing of one that follows. Raises OversizedError."""
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > self.limit:
            raise OversizedError(f"a frame of {length / MIB:.1f} MiB")
        return self._exactly(length)

    def receive_with_descriptors(self) -> tuple[bytes, list[int]]:
        """As `receive`, with the descriptors that came before the frame, if any."""
        first, passed, _, _ = self.stream.recvmsg(CHUNK, PASSED, socket.MSG_CMSG_CLOEXEC)
        if not first:
            raise ConnectionResetError
        descriptors = list(memoryview(passed[0][2]).cast("i")) if passed else []
        return self._frame(first[len(START) :] if passed else first), descriptors

    def _frame(self, first: bytes) -> bytes:
        while len(first) < HEADER.size:
            first += self._read(CHUNK)
        (length,) = HEADER.unpack_from(first)
        if length > self.limit:
            raise OversizedError(f"a reply of {length / MIB:.1f} MiB")
        parts = [first[HEADER.size :]]
        size = len(parts[0])
        while size < length:
            parts.append(self._read(max(CHUNK, length - size)))
            size += len(parts[-1])
        if size > length:
            raise UnaskedError
        return b"".join(parts)

    def wait(self) -> None:
        """Wait until there is something to read, or the other side has hung up."""
        self.stream.recv(1, socket.MSG_PEEK)

    def is_quiet(self) -> bool:
        """Whether nothing waits to be read."""
        try:
            waiting = self.stream.recv(1, LOOK)
        except BlockingIOError:
            return True
        if not waiting:
            raise ConnectionResetError
        return False

    def _exactly(self, size: int) -> bytes:
        parts = list[bytes]()
        while size:
            parts.append(self._read(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        data = self.stream.recv(size)
        if not data:
            raise ConnectionResetError
        return data


class BufferedSocket:
    """A stream of frames that never blocks; what cannot be written yet is buffered.

    `most`: bytes of a frame to read. Whoever announces more counts as hung up.
    """

    def __init__(self, stream: socket.socket, most: int = sys.maxsize) -> None:
        stream.setblocking(False)
        self.stream = stream
        self.most = most
        self.open = True
        """False once the other side has hung up."""
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @property
    def pending(self) -> int:
        """Bytes that wait to be written."""
        return len(self._outgoing)

    def send_with_descriptors(self, descriptors: Sequence[int], frame: bytes) -> None:
        """Write one byte with descriptors, then a frame. Raises OSError where the descriptors
        cannot be sent.
        """
        data = START + framed(frame)
        self._outgoing += data[socket.send_fds(self.stream, [data], descriptors) :]
        self.flush()

    def send(self, frame: bytes) -> None:
        """Write one frame, now or as soon as the other side reads."""
        self._outgoing += framed(frame)
        self.flush()

    def flush(self) -> None:
        """Write what is buffered. That the other side has hung up is noticed by reading."""
        try:
            while self._outgoing:
                del self._outgoing[: self.stream.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()

    def receive(self) -> list[bytes]:
        """Every whole frame that has arrived."""
        try:
            while chunk := self.stream.recv(CHUNK):
                self._incoming += chunk
                if len(chunk) < CHUNK or len(self._incoming) > self.most:
                    break
            else:
                self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        frames: list[bytes] = []
        while len(self._incoming) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._incoming)[0]
            if end > HEADER.size + self.most:
                self.open = False
                self._incoming.clear()
            if len(self._incoming) < end:
                break
            frames.append(bytes(self._incoming[HEADER.size : end]))
            del self._incoming[:end]
        return frames


def rehearse_receiving(frame: bytes, use: Callable[[bytes], object]) -> None:
    """Receive and use a frame with a descriptor in a zygote, so that its forks inherit filled
    caches and specialised code.
    """
    near, far = socket.socketpair()
    sender, receiver = BufferedSocket(near), FramedSocket(far, CHUNK)
    with near, far:
        for _ in range(TIMES):
            sender.send_with_descriptors([0], frame)
            received, descriptors = receiver.receive_with_descriptors()
            os.close(*descriptors)
            use(received)
