"""Processes of ours that read large requests, so that the service's event loop never does: a task
of 1 MB takes seconds to parse and to prepare, and nobody else would be answered meanwhile.

They run nothing of what they read. One that reads for too long is ended by its limit of CPU time,
and the request that it was reading is refused.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.errors import DataError, SandboxError
from assay.integrations.fair_turns import FairTurns
from assay.integrations.reading import ReadBody, read_and_prepare
from assay.registry import load_plugins
from assay.sandbox import kernel
from assay.sandbox.kernel import MIB
from assay.sandbox.limits import Limits
from assay.sandbox.processes import OPTIONS, start_python
from assay.sandbox.sockets import FramedSocket
from assay.syntax_trees import READ_TEXTS

COMMAND = (*OPTIONS, "assay.integrations.readers")
MOST = 2
"""Requests that are read at once; others wait, as FairTurns says. Each takes a core."""
CPU_SECONDS = 20
"""The usual CPU time in which a request must be read: twice that of the longest allowed task."""
MEMORY_MB, KEPT_MB = 2048, 512
"""Memory that a process may take, and how much it may still hold to read one more, beside what it
holds when it starts."""
NICENESS = 10
"""How far the programs of others go before, where there are too few cores."""
FRAME_BYTES = 4096 * MIB - 1
BY_REQUEST = (-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
"""Ends of a process that are the doing of what it was reading."""


class Reader:
    """One such process, which starts when it is needed."""

    def __init__(self, seconds: int, plugins: Sequence[str]) -> None:
        self._seconds, self._plugins = seconds, plugins
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._gives_way = False
        self.is_left = False
        """Whether nobody waits for its answer any more."""

    def ask(self, *question: Any) -> Any:
        """What `read_and_prepare` answers; in a thread. Raises what it raises, SandboxError where
        the machine fails.
        """
        frame = pickle.dumps(question)
        try:
            for _ in range(2):
                try:
                    return self._answer(frame)
                except ConnectionError:
                    if code := self.end():  # else it had just ended for its size
                        break
        except OSError as error:
            raise SandboxError(f"the request could not be read: {error}") from None
        finally:
            if self.is_left:
                self.end()
        if code in BY_REQUEST:
            raise DataError(
                f"the request takes more than {self._seconds} s to read; send smaller tasks"
            )
        raise SandboxError(f"the request could not be read: its process ended with {code}")

    def _answer(self, question: bytes) -> Any:
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._socket, self._process = start_python(
                COMMAND, socket.SOCK_STREAM, str(self._seconds), *self._plugins,
                start_new_session=True,
            )  # fmt: skip
            self._gives_way = kernel.give_way(self._process.pid, NICENESS)  # its start takes long
            if self.is_left:  # since it was looked for, in vain
                self._process.kill()
        assert self._socket
        if not self._gives_way:  # its session, which has to wait where several start at once
            self._gives_way = kernel.give_way(self._process.pid, NICENESS)
        stream = FramedSocket(self._socket, FRAME_BYTES)
        stream.send(question)
        answer = pickle.loads(stream.receive())  # noqa: S301  it runs nothing that it reads
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave(self) -> None:
        """End the process, whoever waits for it; or as soon as it has started."""
        self.is_left = True
        if (process := self._process) is not None:  # the thread may end it meanwhile
            process.kill()

    def end(self) -> int:
        """End the process. Returns its exit code; 0 where none runs."""
        process, stream = self._process, self._socket
        self._process = self._socket = None
        if stream is not None:
            stream.close()
        if process is None:
            return 0
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class Readers:
    """Up to MOST of them. plugins: files that they load, as this process has. seconds: CPU time in
    which a request must be read.
    """

    def __init__(self, plugins: Iterable[Path] = (), seconds: int = CPU_SECONDS) -> None:
        self._seconds, self._plugins = seconds, [*map(os.path.abspath, plugins)]
        self._idle: list[Reader] = []
        self._turns = FairTurns(MOST)

    async def read(self, kind: str, body: bytes, limits: Limits, stop_early: bool) -> ReadBody:
        """As `read_and_prepare`. Raises DataError, and SandboxError where the machine fails."""
        async with self._turns.turn():
            reader = self._idle.pop() if self._idle else Reader(self._seconds, self._plugins)
            try:
                reading: ReadBody = await asyncio.to_thread(
                    reader.ask, kind, body, limits, stop_early
                )
                return reading
            except asyncio.CancelledError:
                reader.leave()
                raise
            finally:
                if not reader.is_left:
                    self._idle.append(reader)

    def close(self) -> None:
        """End all that are idle; the others end with the requests that wait for them."""
        while self._idle:
            reader = self._idle.pop()
            reader.leave()
            reader.end()


def main() -> None:
    """Answer one question after the other, until the other side hangs up."""
    kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
    stream = FramedSocket(socket.socket(fileno=int(sys.argv[1])), FRAME_BYTES)
    seconds, plugins = int(sys.argv[2]), sys.argv[3:]
    load_plugins(plugins)
    READ_TEXTS.resize(KEPT_MB)
    pid, start_mb = os.getpid(), kernel.used_mb_of(os.getpid())  # with what the plug-ins hold
    pages = int(kernel.read_text("/proc/self/statm").split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY_MB * MIB)
    limit(resource.RLIMIT_CORE, 0)
    gc.disable()  # a tree is a million objects, none of them garbage
    while kernel.used_mb_of(pid) < start_mb + KEPT_MB:
        try:
            kind, body, limits, stop_early = pickle.loads(stream.receive())  # noqa: S301  the service's
        except ConnectionError:
            return
        limit_cpu(seconds)
        stream.send(answer_to(kind, body, limits, stop_early))
        READ_TEXTS.clear()
        gc.collect()


def limit_cpu(seconds: int) -> None:
    """Let the kernel end this process once it has used so many more seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + seconds + 1)


def limit(kind: int, most: int) -> None:
    """Bound this process, within the limits that its user has."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer_to(kind: str, body: bytes, limits: Limits, stop_early: bool) -> bytes:
    """What is read of a body, or what is raised, for the other side."""
    try:
        return pickle.dumps(read_and_prepare(kind, body, limits, stop_early))
    except MemoryError:
        return pickle.dumps(DataError("the request takes too much memory to read; send less"))
    except Exception as error:  # noqa: BLE001  the other side raises it, as if it had read the request
        return pickle.dumps(error.with_traceback(None))


if __name__ == "__main__":
    main()
