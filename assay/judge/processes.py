"""The processes behind a slot, as the supervisor holds them by descriptors: what they are given,
and what they use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from dataclasses import dataclass

from assay.judge.buffered_socket import BufferedSocket
from assay.judge.verdict import RunRecord
from assay.judge.wire_job import WireJob
from assay.sandbox import kernel

CANDIDATE_JOBS, CANDIDATE_CPU_SECONDS, CANDIDATE_MEMORY_MB = 100, 1.0, 64
"""What a leaf may have done and used to be given another program: its limits are those of a
process."""
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(slots=True)
class CandidateProcess:
    """A candidate's process that waits for a program."""

    pid: int
    wire: int
    """The worker's end of the leaf's socket."""
    printed: int
    pidfd: int
    jobs: int = 0
    """Programs that it was given."""
    spent: float = 0.0
    """CPU seconds that went into those before this one."""
    starved: float = 0.0
    """Seconds for which it had no core before this program."""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of this program so far; 0 where the leaf is gone."""
        try:
            return kernel.cpu_seconds_of(pid_of(self.pidfd)) - self.spent
        except OSError:
            return 0.0

    def is_dead(self, patience: float = 0) -> bool:
        """Whether it has ended, waiting up to `patience` seconds for that."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(patience * 1000))

    def settles(self, seen: RunRecord) -> bool:
        """Whether another program may be run here; what this one used is noted then."""
        try:
            pid = pid_of(self.pidfd)
            used, (peak, data) = kernel.cpu_seconds_of(pid), memory_mb(pid)
        except OSError:
            return False
        if (
            self.jobs >= CANDIDATE_JOBS
            or used > CANDIDATE_CPU_SECONDS
            or not 0 < peak < CANDIDATE_MEMORY_MB
            or data > CANDIDATE_MEMORY_MB
        ):
            return False
        seen.cpu_seconds, seen.memory_mb = used - self.spent, peak
        self.spent, self.starved = used, starved_seconds(pid)
        return True

    def close(self) -> None:
        """Let go of every descriptor."""
        for descriptor in (self.wire, self.printed, self.pidfd):
            os.close(descriptor)


@dataclass(slots=True)
class WorkerProcess:
    """A test worker; it takes one job after another for as long as no job left a trace in it."""

    pid: int
    control: BufferedSocket
    pidfd: int
    jobs: int = 0

    def give(self, leaf: CandidateProcess, order: WireJob) -> None:
        """Hand it a candidate and a job."""
        self.jobs += 1
        leaf.jobs += 1
        stdin = [] if order.stdin is None else [memory_file(order.stdin)]
        try:
            self.control.hand([leaf.wire, *stdin], order.payload)
        except OSError:
            kill(self.pidfd)  # the machine's failure, seen by the worker's silence
        for descriptor in stdin:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of every descriptor."""
        self.control.stream.close()
        os.close(self.pidfd)


def memory_file(data: bytes) -> int:
    """A descriptor that reads `data`, and that nobody can write to."""
    file = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file


def kill(pidfd: int, sign: signal.Signals = signal.SIGKILL) -> None:
    """A signal by descriptor, so that no other process can be hit."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, sign)


def starved_seconds(pid: int) -> float:
    """Seconds that the main thread of a process waited for a core; 0 where the kernel does not
    tell.
    """
    times = kernel.said(f"/proc/{pid}/schedstat").split()
    return int(times[1]) / 1e9 if len(times) > 1 else 0.0


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return kernel.said(f"/proc/{pid}/stat").rpartition(") ")[2].startswith("T")


def kill_children() -> None:
    """SIGKILL to every child that this process has, or has inherited."""
    with contextlib.suppress(OSError):
        for pid in kernel.said(f"/proc/self/task/{os.getpid()}/children").split():
            os.kill(int(pid), signal.SIGKILL)


def memory_mb(pid: int) -> tuple[float, float]:
    """The most memory in MiB that a process has had in use, and what it has now, used or not; 0 if
    not told.
    """
    said = kernel.said(f"/proc/{pid}/status")
    peak, data = (said.partition(name)[2].split(maxsplit=1)[:1] for name in ("VmHWM:", "VmData:"))
    return (int(peak[0]) / 1024, int(data[0]) / 1024) if peak and data else (0.0, 0.0)


def pid_of(pidfd: int) -> int:
    """The pid as seen from here, which is another one than the zygote's in a namespace. Raises
    OSError.
    """
    _, known, rest = kernel.said(f"/proc/self/fdinfo/{pidfd}").partition("Pid:")
    if not known:
        raise OSError(f"no process behind descriptor {pidfd}")
    return int(rest.split(maxsplit=1)[0])
