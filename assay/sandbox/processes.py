"""The processes behind a slot, as the supervisor holds them: by descriptors, which it watches."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NamedTuple

from assay.sandbox import kernel
from assay.sandbox.cgroups import Group
from assay.sandbox.program import ENVIRONMENT, Ended, Pool, Program
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.zygote import MESSAGE

Source = int | socket.socket


class Events(DefaultSelector):
    """The descriptors to watch and the function to call for each."""

    def watch(self, source: Source, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `source` can be read."""
        self.register(source, EVENT_READ, callback)

    def unwatch(self, *sources: Source) -> None:
        """Watch no longer; harmless where nobody watched."""
        for source in sources:
            with contextlib.suppress(KeyError, ValueError):
                self.unregister(source)

    def dispatch(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for events, and call their functions."""
        for key, _ in self.select(timeout):
            # a callback earlier in this round may have closed the source, and another one may have
            # got its number
            if self.get_map().get(key.fd) is key:
                key.data()


SESSIONS, SESSION_MB, SESSION_THREADS = 512, 128, 3
"""Processes that may be kept at once, and the memory and further threads that each may hold while
it is stopped: a joined thread may still be exiting."""


@dataclass(slots=True)
class Process:
    """A process that a zygote has forked."""

    pid: int
    """As the zygote knows it, which may be in a PID namespace."""
    pidfd: int

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal by descriptor, so that it cannot hit another process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, sign)

    def kill_group(self) -> None:
        """SIGKILL what it has started, where it is in our own PID namespace."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(slots=True)
class CandidateProcess(Process):
    """A process that waits for a program, or runs one."""

    sock: socket.socket
    """Our end of its socket, which a companion gets too."""
    printed: int
    """The descriptor from which to read what it prints."""
    spent: float = 0.0
    """CPU seconds that the programs before in it used."""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of this program so far; 0 where the process has ended."""
        try:
            return kernel.cpu_seconds_of(pid_of(self.pidfd)) - self.spent
        except OSError:
            return 0.0

    def is_dead(self, patience: float = 0) -> bool:
        """Whether it has ended, after waiting up to `patience` seconds for that."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(patience * 1000))

    def start(self, program: Program) -> tuple[BufferedSocket, int]:
        """Send it a program that stands alone. Returns its channel, on which it says why it cannot
        start, and the descriptor from which to read its standard output: -1 where the machine has
        no room for descriptors.
        """
        channel = BufferedSocket(self.sock, REPLY_BYTES)
        passed: list[int] = []
        try:
            reading, writing = output_pipe()
            passed += [writing]
            os.set_blocking(reading, False)
            passed.insert(0, kernel.memory_file(program.stdin))
            if program.executable:
                passed.append(os.open(program.executable, os.O_RDONLY))
            channel.send_with_descriptors(passed, program.payload)
        except OSError:
            if passed:
                os.close(reading)
            reading = -1
        for descriptor in passed:
            os.close(descriptor)
        return channel, reading

    def pause(self) -> tuple[Ended, str] | None:
        """Stop it until it gets more code. Returns why it cannot be kept, if that is so."""
        self.spent += self.cpu_seconds
        self.kill(signal.SIGSTOP)
        text = kernel.read_text(f"/proc/{pid_of(self.pidfd)}/status")
        status = dict(re.findall(r"^(RssAnon|VmPTE|Threads):\s+(\d+)", text, re.MULTILINE))
        if len(status) < 3:
            return Ended.CLOSED, "ended after its code"
        if int(status["RssAnon"]) + int(status["VmPTE"]) > SESSION_MB * 1024:
            return Ended.MEMORY, f"held more than {SESSION_MB} MiB when the code had ended"
        if int(status["Threads"]) > 1 + SESSION_THREADS:
            return Ended.CLOSED, f"left more than {SESSION_THREADS} threads running"
        return None

    def close(self) -> None:
        """Close every descriptor."""
        self.sock.close()
        for descriptor in (self.printed, self.pidfd):
            os.close(descriptor)


@dataclass(slots=True)
class CompanionProcess(Process):
    """A companion; it takes one job after another while no job can have changed it."""

    control: BufferedSocket
    jobs: int = 0

    def give(self, candidate: CandidateProcess, job: bytes) -> None:
        """Send it a candidate's socket and a job."""
        self.jobs += 1
        try:
            self.control.send_with_descriptors([candidate.sock.fileno()], job)
        except OSError:
            self.kill()  # the machine's failure; the companion's silence shows it

    def close(self) -> None:
        """Close every descriptor."""
        self.control.stream.close()
        os.close(self.pidfd)


class TimeLimit:
    """The CPU and wall time of one run from now on. Time spent waiting for a core is given back.

    cpu_seconds, wall_seconds: of one step. starved: seconds for which the process has waited for a
    core before; infinite where none is given back. steps: how many times these times all steps
    together have.
    """

    def __init__(
        self, candidate: CandidateProcess, cpu_seconds: float, wall_seconds: float,
        starved: float = 0.0, steps: float = 1.0,
    ) -> None:  # fmt: skip
        now = time.monotonic()
        self.candidate, self.starved = candidate, starved
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds
        self.before = 0.0
        """CPU seconds that were used when this step began."""
        self.total, self.last = steps * cpu_seconds, now + steps * wall_seconds
        """CPU seconds and the deadline of all steps together; times are on the monotonic clock."""
        self.deadline, self.next_look = now + wall_seconds, now + cpu_seconds
        """When to read the CPU time next: no earlier than it can be used up by one thread."""

    def next_step(self) -> None:
        """Give the next step the time of one."""
        self.before = self.candidate.cpu_seconds
        self.deadline = min(time.monotonic() + self.wall_seconds, self.last)

    @property
    def due(self) -> float:
        """When to call `exceeded` next."""
        return min(self.deadline, self.next_look)

    def exceeded(self, now: float) -> Ended | None:
        """CPU, WALL, or None where time is left."""
        if now >= self.next_look:
            most = min(self.before + self.cpu_seconds, self.total)
            left = most - self.candidate.cpu_seconds
            self.next_look = now + max(0.002, left)
            if left <= 0:
                return Ended.CPU
        if now < self.deadline:
            return None
        starved = starved_seconds(pid_of(self.candidate.pidfd))
        if starved - self.starved <= 0.01:
            return Ended.WALL
        self.deadline += starved - self.starved
        self.starved = starved
        return None


class Executable:
    """A program's file in memory, which the supervisor opens by its path."""

    def __init__(self, data: bytes) -> None:
        self._file = kernel.memory_file(data)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def __del__(self) -> None:
        os.close(self._file)


def output_pipe() -> tuple[int, int]:
    """A pipe that a program of another user may open again, as /dev/stdout or /dev/stderr."""
    reading, writing = os.pipe()
    os.fchmod(writing, 0o222)
    return reading, writing


def starved_seconds(pid: int) -> float:
    """Seconds that a process's main thread waited for a core; 0 where the kernel does not say."""
    times = kernel.read_text(f"/proc/{pid}/schedstat").split()
    return int(times[1]) / 1e9 if len(times) > 1 else 0.0


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return kernel.read_text(f"/proc/{pid}/stat").rpartition(") ")[2].startswith("T")


def pid_of(pidfd: int) -> int:
    """The pid in our own PID namespace. Raises OSError."""
    _, label, rest = kernel.read_text(f"/proc/self/fdinfo/{pidfd}").partition("Pid:")
    if not label:
        raise OSError(f"no process behind descriptor {pidfd}")
    return int(rest.split(maxsplit=1)[0])


ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LD_BIND_NOW")
"""Variables that are 1 in a zygote."""
OPTIONS = ("-P", "-s", "-B", "-m")
DESCRIPTORS = 8
"""Most that come with one message of a zygote."""
REPLY_BYTES = 65_536
"""Most bytes in which a program that stands alone says why it cannot start."""


def start_python(
    command: Sequence[str], kind: socket.SocketKind, *arguments: str,
    pass_fds: Sequence[int] = (), **options: Any,
) -> tuple[socket.socket, subprocess.Popen[bytes]]:  # fmt: skip
    """Start this Python with a command, whose first argument is the number of its end of a pair of
    sockets. Returns the other end. Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with theirs:
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, *command, str(descriptor), *arguments],
            pass_fds=[descriptor, *pass_fds],
            stdin=subprocess.DEVNULL, cwd="/", **options,
        )  # fmt: skip
    return ours, process


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

    def send(self, command: object, replies: int = 1) -> None:
        """Write a command, to which it will answer with so many messages."""
        self._replies_due += replies
        self.waiting_since = self.waiting_since or time.monotonic()
        with contextlib.suppress(OSError):  # its death is noticed by reading
            self.control.send(json.dumps(command).encode())

    def receive(self) -> ZygoteMessage | None:
        """The next message, if one has come. Raises OSError where this process may open no more
        descriptors.
        """
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                self.control, MESSAGE, DESCRIPTORS, socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it died with commands unread; its last messages follow
            return self.receive()
        except OSError:
            data = b""
        if not data:
            return ZygoteMessage("died", [], [])
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._replies_due -= 1
        self.waiting_since = time.monotonic() if self._replies_due else 0.0
        kind, *parts = json.loads(data)
        return ZygoteMessage(kind, parts, descriptors)

    def close(self) -> None:
        """Kill it and wait for its end."""
        self._process.kill()
        self.control.close()
        self._process.wait()
