"""Frames between processes: whatever the other side writes, a reader gives whole frames within its
bound, or says that the other side is gone.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.sandbox import sockets
from assay.sandbox.sockets import (
    BufferedSocket,
    FramedSocket,
    OversizedError,
    framed,
    receive_frame,
)

MOST = 100
Reader = Callable[[socket.socket], list[bytes] | None]


def blocking(stream: socket.socket) -> list[bytes] | None:
    """The one frame that a stream holds; None where it is refused or cut short."""
    try:
        return [FramedSocket(stream, MOST).receive()]
    except (ConnectionError, OversizedError):
        return None


def buffered(stream: socket.socket) -> list[bytes] | None:
    channel, frames = BufferedSocket(stream, MOST), list[bytes]()
    while channel.open:
        frames += channel.receive()
    return frames or None


def in_event_loop(stream: socket.socket) -> list[bytes] | None:
    async def read() -> list[bytes] | None:
        reader, writer = await asyncio.open_connection(sock=stream)
        try:
            return [await receive_frame(reader, MOST)]
        except (asyncio.IncompleteReadError, OversizedError):
            return None
        finally:
            writer.close()

    return asyncio.run(read())


@pytest.mark.parametrize("read", [blocking, buffered, in_event_loop])
@pytest.mark.parametrize(
    ("written", "frames"),
    [
        (framed(b"whole"), [b"whole"]),
        (framed(b""), [b""]),
        (framed(b"x" * MOST), [b"x" * MOST]),
        (framed(b"x" * (MOST + 1)), None),
        (b"\xff\xff\xff\xff", None),
        (b"\xff\xff\xff\xff" + b"x" * 200_000, None),
        (framed(b"cut short")[:-1], None),
        (b"\0\0", None),
        (b"", None),
        (b'{"a": "line"}\n', None),
    ],
)
def test_each_reader_takes_whole_frames_within_its_bound_and_nothing_else(
    read: Reader, written: bytes, frames: list[bytes] | None
) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.setblocking(False)
            theirs.send(written) if written else None
        assert read(ours) == frames


def test_its_text_alone_works_where_nothing_of_assay_is(tmp_path: Path) -> None:
    (tmp_path / "frames.py").write_text(Path(sockets.__file__).read_text())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import socket, frames\n"
        "one, other = map(frames.FramedSocket, socket.socketpair(), (100, 100))\n"
        "one.send(b'text')\nprint(other.receive(), [it for it in sys.modules if 'assay' in it])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-ISc", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "b'text' []\n"
