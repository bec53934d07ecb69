"""One place to run a program: a zygote, a pair that waits, and at most one execution at a time."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field

from assay.judge.channel import Channel
from assay.judge.verdict import Evidence
from assay.sandbox import kernel
from assay.sandbox.allowed import allowed
from assay.sandbox.limits import Limits

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "TZ": "UTC",
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # fmt: skip
MESSAGE = 65_536
DEATH_SECONDS = 0.05
"""How long a leaf that has hung up may take to be seen dead."""


@dataclass(slots=True)
class Request:
    """One job as the trainer sent it, and how often it was tried."""

    number: int
    payload: bytes
    attempt: int = 0
    avoid: Slot | None = None


@dataclass(slots=True)
class Pair:
    """A leaf and a worker that wait for a job."""

    leaf: int
    worker: int
    control: Channel
    printed: int
    leaf_pidfd: int
    worker_pidfd: int

    def kill(self) -> None:
        """End both, at once."""
        for pidfd in (self.leaf_pidfd, self.worker_pidfd):
            kill(pidfd)

    def close(self) -> None:
        """Let go of every descriptor."""
        self.control.stream.close()
        for descriptor in (self.printed, self.leaf_pidfd, self.worker_pidfd):
            os.close(descriptor)


@dataclass(slots=True)
class Run:
    """One execution, from the job's start until its pair is reaped."""

    request: Request
    pair: Pair
    started: float
    deadline: float
    next_look: float
    stopped: str = ""
    alive: bool = False
    report: bytes | None = None
    wall_seconds: float = 0.0
    printed: bytearray = field(default_factory=bytearray)
    printed_bytes: int = 0

    def read_printed(self, keep: int) -> bool:
        """Take what the candidate printed, keeping the first `keep` bytes. False at its end."""
        try:
            chunk = os.read(self.pair.printed, MESSAGE)
        except BlockingIOError:
            return True
        self.printed += chunk[: max(0, keep - len(self.printed))]
        self.printed_bytes += len(chunk)
        return bool(chunk)

    def leaf_is_dead(self, patience: float) -> bool:
        """Whether the leaf has ended, waiting up to `patience` seconds for it."""
        poll = select.poll()
        poll.register(self.pair.leaf_pidfd, select.POLLIN)
        return bool(poll.poll(patience * 1000))

    def evidence(self, status: int, cpu_seconds: float, memory_mb: float) -> Evidence:
        """All that is known, once the pair is reaped."""
        report = json.loads(self.report) if self.report is not None else None
        return Evidence(
            report, self.stopped, self.alive, status, cpu_seconds, memory_mb, self.wall_seconds,
            bytes(self.printed), self.request.attempt,
        )  # fmt: skip


class Slot:
    """A zygote with its pairs. `died` is set when the zygote has gone; `failure` when it never came up."""

    def __init__(self, number: int, limits: Limits, required: bool) -> None:
        self.number = number
        self.settings = {"required": required, "limits": asdict(limits), **asdict(allowed(number))}
        self.ready: deque[Pair] = deque()
        self.ending: dict[int, Run] = {}
        self.run: Run | None = None
        self.failure = ""
        self.asked = 0.0
        self._start()

    @property
    def free(self) -> bool:
        """Whether a job could start at once."""
        return self.run is None and bool(self.ready)

    def _start(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-s", "-B", "-m", "assay.judge.zygote", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, cwd="/", pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._say(self.settings)
        self.spawn()

    def spawn(self) -> None:
        """Ask for one more pair."""
        self._say(["spawn"])

    def begin(self, request: Request, limits: Limits) -> Run:
        """Start a job on the pair that waits, and ask for the next pair meanwhile."""
        pair = self.ready.popleft()
        now = time.monotonic()
        self.run = Run(request, pair, now, now + limits.wall_seconds, now + limits.cpu_seconds / cores())
        pair.control.send(request.payload)
        self.spawn()
        return self.run

    def end(self) -> None:
        """Kill the pair of the execution and have it reaped."""
        run = self.run
        if run is None:
            return
        run.alive = not run.leaf_is_dead(DEATH_SECONDS if run.report is not None and b'"gone"' in run.report else 0)
        run.wall_seconds = time.monotonic() - run.started
        run.pair.kill()
        self.ending[run.pair.leaf] = run
        self.run = None
        self._say(["reap", [run.pair.leaf, run.pair.worker]])

    def messages(self) -> list[tuple[str, list[object]]]:
        """What the zygote has said: `ready`, `failed`, `pair` (taken in here) or `reaped`; `died` when it is gone."""
        try:
            data, rights, _, _ = self.control.recvmsg(MESSAGE, 256, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return [("died", [])]
        if not data:
            return [("died", [])]
        self.asked = 0.0
        kind, *parts = json.loads(data)
        if kind == "pair":
            self._take(parts, rights)
        return [(kind, parts)]

    def kill(self) -> None:
        """End the zygote and every pair of it."""
        runs = [*self.ending.values(), *([self.run] if self.run else [])]
        for pair in [*self.ready, *(run.pair for run in runs)]:
            pair.kill()
        self.process.kill()

    def close(self) -> list[Run]:
        """Kill all and let go of everything; the executions that were under way."""
        self.kill()
        runs = [*self.ending.values(), *([self.run] if self.run else [])]
        for pair in [*self.ready, *(run.pair for run in runs)]:
            pair.close()
        self.control.close()
        self.process.wait()
        return runs

    def _take(self, pids: list[int], rights: list[tuple[int, int, bytes]]) -> None:
        descriptors = array.array("i", rights[0][2]).tolist()
        control, printed, leaf_pidfd, worker_pidfd = descriptors
        os.set_blocking(printed, False)
        channel = Channel(socket.socket(fileno=control))
        self.ready.append(Pair(pids[0], pids[1], channel, printed, leaf_pidfd, worker_pidfd))

    def _say(self, message: object) -> None:
        self.asked = self.asked or time.monotonic()
        with contextlib.suppress(OSError):  # a zygote that is gone is noticed by reading
            self.control.send(json.dumps(message).encode())


def kill(pidfd: int) -> None:
    """SIGKILL by descriptor, so that no other process can be hit."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_seconds(run: Run) -> float:
    """CPU seconds of the leaf so far; 0 where it is gone."""
    try:
        return kernel.cpu_seconds_of(run.pair.leaf)
    except OSError:
        return 0.0
