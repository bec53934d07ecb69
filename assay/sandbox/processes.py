"""The processes behind a slot, as the supervisor holds them: by descriptors, which it watches."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.sandbox import kernel
from assay.sandbox.program import Ended, Program
from assay.sandbox.sockets import BufferedSocket

Source = int | socket.socket


SESSIONS, SESSION_MB, SESSION_THREADS = 512, 128, 3
"""Processes that may be kept at once, and the memory and further threads that each may hold while
it is stopped: a joined thread may still be exiting."""


@dataclass(slots=True)
class Process:
    """A process that a zygote has forked."""

    pid: int
    """As the zygote knows it, which may be in a PID namespace."""
    pidfd: int
    session: int = field(default=-1, kw_only=True)
    """A descriptor by which to set the niceness of its session; -1 where none is needed."""

    @property
    def number(self) -> int:
        """Its pid in our own PID namespace; 0 where it has ended."""
        try:
            return pid_of(self.pidfd)
        except (OSError, ValueError):
            return 0

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal by descriptor, so that it cannot hit another process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, sign)

    def is_dead(self, patience: float = 0) -> bool:
        """Whether it has ended, after waiting up to `patience` seconds for that."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(patience * 1000))

    def close_files(self, *others: int) -> None:
        """Close its descriptors, and others."""
        for descriptor in {self.pidfd, self.session, *others} - {-1}:
            os.close(descriptor)

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

    @property
    def used_mb(self) -> float:
        """MiB of memory that is no file's, swapped or not, with what the kernel keeps for it; 0
        where the process has ended.
        """
        try:
            return kernel.used_mb_of(pid_of(self.pidfd))
        except OSError:
            return 0.0

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
        self.close_files(self.printed)


@dataclass(slots=True)
class CompanionProcess(Process):
    """A companion; it takes one job after another while no job can have changed it."""

    control: BufferedSocket
    jobs: int = 0
    is_slow: bool = False
    """Whether others go before it, for good: who is not root cannot take that back."""

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
        self.close_files()


class Executable:
    """A program's file in memory, which the supervisor opens by its path."""

    def __init__(self, data: bytes) -> None:
        self._file, self._bytes = kernel.memory_file(data), len(data)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def __sizeof__(self) -> int:
        """The memory that the file takes, too."""
        return object.__sizeof__(self) + self._bytes

    def __del__(self) -> None:
        os.close(self._file)


def output_pipe() -> tuple[int, int]:
    """A pipe that a program of another user may open again, as /dev/stdout or /dev/stderr."""
    reading, writing = os.pipe()
    os.fchmod(writing, 0o222)
    return reading, writing


def starved_seconds(pid: int) -> float:
    """The most seconds that a thread of a process waited for a core; 0 where the kernel does not
    say.
    """
    with contextlib.suppress(OSError):
        texts = [kernel.read_text(f"{it.path}/schedstat") for it in os.scandir(f"/proc/{pid}/task")]
        return max((int(text.split()[1]) for text in texts if text), default=0) / 1e9
    return 0.0


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
