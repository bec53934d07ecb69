"""A zygote as its supervisor sees it: what it was asked for, and what it says."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from typing import Any, NamedTuple

from assay.sandbox.cgroups import Group
from assay.sandbox.processes import ONE_THREAD, OPTIONS, output_pipe, start_python
from assay.sandbox.program import ENVIRONMENT, FETCHED, Pool
from assay.sandbox.zygote import MESSAGE

LOST_DESCRIPTORS = int(socket.MSG_CTRUNC)
"""A flag of what came without all of its descriptors. As an enum's it takes long to test."""


class ZygoteMessage(NamedTuple):
    """What a zygote says: `ready`, `failed`, `candidate`, `companion`, `ended` or `died`."""

    kind: str
    parts: list[Any]
    descriptors: list[int]


class ZygoteProcess:
    """One zygote of a pool, which runs `module` and waits for its ZygoteSettings. Raises OSError
    where it cannot be started.
    """

    def __init__(self, module: str, pool: Pool) -> None:
        # what it forks inherits its streams, which must have been made for a pipe
        ends = output_pipe()
        environment = {**ENVIRONMENT, **dict.fromkeys(ONE_THREAD, "1"), "HOME": "/"}
        environment["PYTHONHASHSEED"] = str(pool.seed)
        self.control, self._process = start_python(
            (*OPTIONS, module), socket.SOCK_SEQPACKET, json.dumps(pool), pass_fds=ends[:1],
            env=environment, stdout=ends[1], stderr=ends[1],
        )  # fmt: skip
        for end in ends:
            os.close(end)
        self.waiting_since = 0.0
        """When it was first asked for what it has not answered yet; 0 where nothing is due."""
        self._replies_due = 0

    def join(self, group: Group) -> None:
        """Put it into a control group. Raises OSError."""
        with contextlib.suppress(ProcessLookupError):  # its death is noticed by reading
            group.add(self._process.pid)

    def send(self, command: object) -> None:
        """Write a command, to which it will answer with a message."""
        self._replies_due += 1
        self.waiting_since = self.waiting_since or time.monotonic()
        with contextlib.suppress(OSError):  # its death is noticed by reading
            self.control.send(json.dumps(command).encode())

    def receive(self) -> ZygoteMessage | None:
        """The next message, if one has come. Raises OSError where this process may open no more
        descriptors.
        """
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                self.control, MESSAGE, FETCHED, socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it died with commands unread; its last messages follow
            return self.receive()
        except OSError:
            data = b""
        if not data:
            return ZygoteMessage("died", [], [])
        if flags & LOST_DESCRIPTORS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._replies_due -= 1
        self.waiting_since = time.monotonic() if self._replies_due else 0.0
        kind, *parts = json.loads(data.decode())  # of bytes, it looks for their encoding
        return ZygoteMessage(kind, parts, descriptors)

    def close(self) -> None:
        """Kill it and wait for its end."""
        self._process.kill()
        self.control.close()
        self._process.wait()
