"""The daemons of a box: processes that outlive commands. The trainer writes to one and reads what
it answers, in lines.

A daemon shares the box with the commands, its memory counts with theirs, and it runs only while the
box does something: it is stopped after each request. What a daemon starts stays with it, but for
what leaves its session, which is killed after a request as what a command starts is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field

from assay.sandbox import kernel
from assay.sandbox.box_output import CHUNK, GIVEN_UP, Output, Stop, ending
from assay.sandbox.box_watch import BoxWatch, namespace_pids
from assay.sandbox.kernel import MIB
from assay.sandbox.program import Ended

UNSENT_BYTES = 4 * MIB
"""What a daemon may leave unread of what is written to it."""
ERROR_BYTES = 8192
"""What is kept of its standard error."""
END_SECONDS, PAUSE_SECONDS = 10.0, 0.001
"""How long what is killed may take to end, after which the daemons are killed too."""


@dataclass(slots=True)
class Daemon:
    """One daemon."""

    pid: int
    pidfd: int
    stream: socket.socket
    """Its standard input and output. Another process cannot open a socket by /proc, as it can a
    pipe."""
    errors: Output
    """Its standard error."""
    unsent: bytearray = field(default_factory=bytearray)
    is_silent: bool = False
    """Whether it has closed its output, which would be ready for ever."""
    ended: Stop | None = None
    """How it has ended; None while it runs."""

    def look(self) -> None:
        """Note whether it has ended; then what it has started is killed."""
        if self.ended is None and select.select([self.pidfd], [], [], 0)[0]:
            self.signal(signal.SIGKILL)
            _, why = ending(os.waitstatus_to_exitcode(kernel.wait(self.pid).status))
            self.ended = Ended.CRASHED, why or "exited with status 0"

    def signal(self, number: int) -> None:
        """Send a signal to it and to its group, which it may not have yet."""
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, number)

    def kill(self, why: Stop) -> None:
        """End it."""
        if self.ended is None:
            self.signal(signal.SIGKILL)
            kernel.wait(self.pid)
            self.ended = why

    def write(self) -> bool:
        """Write what it takes now. Whether something is left."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self.unsent:
                del self.unsent[: self.stream.send(self.unsent)]
        return bool(self.unsent)

    def read(self) -> bytes:
        """What it has written, up to a chunk; nothing at the end too."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            chunk = self.stream.recv(CHUNK)
            self.is_silent = not chunk
            return chunk
        return b""


class Daemons:
    """The daemons of a box, by their numbers. namespaced: whether its processes are those of a
    namespace, of which this process is the first.
    """

    def __init__(self, namespaced: bool) -> None:
        self._namespaced = namespaced
        self._all: list[Daemon] = []

    @property
    def pids(self) -> set[int]:
        """Of those that run, as far as is known."""
        return {daemon.pid for daemon in self._all if daemon.ended is None}

    def add(self, pid: int, stream: socket.socket, errors: int) -> int:
        """Add one, with the descriptor of its standard error. Its number."""
        stream.setblocking(False)
        os.set_blocking(errors, False)
        output = Output(errors, ERROR_BYTES)
        self._all.append(Daemon(pid, os.pidfd_open(pid), stream, output))
        return len(self._all) - 1

    def wake(self) -> None:
        """Let them run."""
        for daemon in self._all:
            daemon.look()
            if daemon.ended is None:
                daemon.signal(signal.SIGCONT)
        if self._namespaced and self.pids:
            kill_all(signal.SIGCONT)

    def kill(self, why: Stop) -> None:
        """End them all."""
        for daemon in self._all:
            daemon.kill(why)

    def stop(self, number: int) -> None:
        """End one, which nobody asks for again."""
        daemon = self._all[number]
        daemon.kill((Ended.CRASHED, "stopped"))
        daemon.stream.close()
        os.close(daemon.errors.descriptor)
        os.close(daemon.pidfd)

    def end_others(self, command: int | None) -> list[kernel.ProcessEnd]:
        """Kill all other processes of the box, wait for them, and stop the daemons."""
        for daemon in self._all:
            daemon.look()
        with contextlib.suppress(ProcessLookupError):
            if command is not None:
                os.kill(command, signal.SIGKILL)
            # atomic: nothing can fork out of it. Without a namespace, nothing can leave its group
            if self._namespaced and not self.pids:
                os.kill(-1, signal.SIGKILL)
            elif command is not None and not self._namespaced:
                os.kill(-command, signal.SIGKILL)
        if not self.pids:
            return kernel.wait_for_all(-1)
        return self._end_in_namespace(command) if self._namespaced else self._end_children()

    def exchange(
        self, number: int, data: bytes, output: bytearray, wall_seconds: float, most: int,
        watch: BoxWatch, trainer: socket.socket,
    ) -> Stop | None:  # fmt: skip
        """Write to one, and read what it answers until that has a line, or more than `most` bytes.
        Why that was not to be had, if so: the trainer's next request is one reason. Raises
        ConnectionResetError where it hangs up.
        """
        daemon = self._all[number]
        daemon.look()
        if daemon.ended is None:
            daemon.unsent += data
            daemon.write()
        deadline = time.monotonic() + wall_seconds
        while len(output) < most:
            if chunk := daemon.read():
                output += chunk
                if b"\n" in chunk:
                    return None
                continue
            if daemon.ended:
                return daemon.ended
            if time.monotonic() >= deadline:
                return Ended.WALL, f"took more than {wall_seconds:g} s"
            if self._wait(daemon, deadline, watch, trainer):
                return GIVEN_UP
            if end := self._excess(daemon, watch):
                daemon.kill(end)
            daemon.look()
        return None

    def errors(self, number: int) -> bytes:
        """What is kept of its standard error, with what it wrote just before it ended."""
        errors = self._all[number].errors
        errors.read()
        return errors.text()

    def _wait(
        self, daemon: Daemon, deadline: float, watch: BoxWatch, trainer: socket.socket
    ) -> bool:
        """Wait until a daemon can be read or written to, has ended, or is to be looked at. Whether
        the trainer gives it up.
        """
        poll = select.poll()
        poll.register(daemon.pidfd, select.POLLIN)
        poll.register(daemon.errors.descriptor, select.POLLIN)
        poll.register(trainer, select.POLLIN | select.POLLRDHUP)
        reads, writes = not daemon.is_silent, daemon.write()
        poll.register(daemon.stream, select.POLLIN * reads | select.POLLOUT * writes)
        wait = max(0.0, min(deadline, watch.next_look) - time.monotonic())
        events = dict(poll.poll(1000 * wait + 1))
        of_trainer = events.get(trainer.fileno(), 0)
        if of_trainer & ~select.POLLIN:
            raise ConnectionResetError
        daemon.errors.read()
        if any(event & select.POLLHUP for event in events.values()):
            time.sleep(PAUSE_SECONDS)  # it has closed a stream, which would be ready for ever
        return bool(of_trainer)

    def _excess(self, daemon: Daemon, watch: BoxWatch) -> Stop | None:
        """Why a daemon must end, if it takes too much or reads too little."""
        if time.monotonic() >= watch.next_look:
            watch.reap(self.pids)
            if end := watch.excess():
                return end
        if len(daemon.unsent) > UNSENT_BYTES:
            return Ended.CRASHED, "reads nothing of what is written to it"
        return None

    def _end_in_namespace(self, command: int | None) -> list[kernel.ProcessEnd]:
        """Kill what is in no daemon's session, which no other process can join. All are stopped
        before, so that nothing forks meanwhile; one that was woken by another as that ended is
        found at the next look.
        """
        deadline, ends = time.monotonic() + END_SECONDS, list[kernel.ProcessEnd]()
        while True:
            kill_all(signal.SIGSTOP)
            others = [pid for pid in namespace_pids() if not self._is_ours(pid)]
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ends += kernel.reap_orphans(self.pids)
            if not any(map(runs, others)):
                break
            if time.monotonic() > deadline:
                self.kill((Ended.CRASHED, "killed with a command that did not end"))
                kill_all(signal.SIGKILL)
                return ends + kernel.wait_for_all(-1)
            time.sleep(PAUSE_SECONDS)
        if command is not None and command not in {end.pid for end in ends}:
            ends.append(kernel.wait(command))
        return ends

    def _end_children(self) -> list[kernel.ProcessEnd]:
        """Wait for the children that are in no daemon's session, and stop the daemons."""
        for daemon in self._all:
            if daemon.ended is None:
                daemon.signal(signal.SIGSTOP)
        ends = list[kernel.ProcessEnd]()
        while others := [pid for pid in kernel.children() if not self._is_ours(pid)]:
            ends += map(kernel.wait, others)
        return ends

    def _is_ours(self, pid: int) -> bool:
        """Whether it is a daemon's process."""
        with contextlib.suppress(ProcessLookupError):
            return pid in self.pids or os.getsid(pid) in self.pids
        return False


def runs(pid: int) -> bool:
    """Whether a process has a thread that has not ended."""
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            _, _, fields = kernel.read_text(f"{thread.path}/stat").rpartition(")")
            if fields and fields.split()[0] not in "ZX":
                return True
    return False


def kill_all(number: int) -> None:
    """Send a signal to all processes of this namespace but the first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, number)
