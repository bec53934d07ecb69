"""Length-prefixed frames over non-blocking sockets, for the supervisor's loop."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from assay.judge.protocol import HEADER, START

CHUNK = 262_144


class BufferedSocket:
    """A stream of frames that never blocks: what cannot be written yet waits here."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self.stream = stream
        self.open = True
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @property
    def pending(self) -> int:
        """Bytes that wait to be written."""
        return len(self._outgoing)

    def hand(self, descriptors: Sequence[int], frame: bytes) -> None:
        """Write descriptors with one byte, then a frame. Raises OSError where the descriptors
        cannot be sent.
        """
        data = START + HEADER.pack(len(frame)) + frame
        self._outgoing += data[socket.send_fds(self.stream, [data], descriptors) :]
        self.flush()

    def send(self, frame: bytes) -> None:
        """Write one frame, now or as soon as the other side reads."""
        self._outgoing += HEADER.pack(len(frame)) + frame
        self.flush()

    def flush(self) -> None:
        """Write what waits. A peer that is gone is noticed by reading."""
        try:
            while self._outgoing:
                del self._outgoing[: self.stream.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()

    def receive(self) -> list[bytes]:
        """Every whole frame that has come. `open` turns false when the other side has hung up."""
        try:
            while chunk := self.stream.recv(CHUNK):
                self._incoming += chunk
                if len(chunk) < CHUNK:
                    break
            else:
                self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        frames: list[bytes] = []
        while len(self._incoming) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._incoming)
            if len(self._incoming) < HEADER.size + length:
                break
            frames.append(bytes(self._incoming[HEADER.size : HEADER.size + length]))
            del self._incoming[: HEADER.size + length]
        return frames
