"""One place to run a program: a zygote, leaves and workers that wait, and at most one execution at
a time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from assay.judge.buffered_socket import BufferedSocket
from assay.judge.processes import (
    CandidateProcess,
    WorkerProcess,
    is_stopped,
    kill,
    pid_of,
    starved_seconds,
)
from assay.judge.verdict import LIBRARIES_MB, RunRecord
from assay.judge.wire_job import INTERPRETER, ZYGOTES, WireJob
from assay.sandbox import cgroups
from assay.sandbox.access import access_rules
from assay.sandbox.limits import MIB, Limits
from assay.sandbox.walls import THREADS
from assay.sandbox.zygote import MESSAGE, WORKER_MEMORY_MB

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0",
    "TZ": "UTC",
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
               "MKL_NUM_THREADS": "1"}  # fmt: skip
WORKER_JOBS = 200
"""Jobs after which a worker is replaced, clean or not."""
CANDIDATES_PER_FORK = 4
"""Leaves that are forked together."""
PROCESSES = 512
"""Threads that all processes of a slot may have."""
SESSIONS, SESSION_MB, SESSION_THREADS = 512, 128, 3
"""Interpreters that may be open at once, and the memory and further threads that each may hold
while it is stopped: one that was joined may still be on its way out."""
DEATH_SECONDS = 0.05
"""How long a leaf that has hung up may take to be seen dead."""


@dataclass(slots=True)
class QueuedJob:
    """One job as the trainer sent it, and what became of it so far."""

    number: int
    order: WireJob
    limits: Limits
    attempt: int = 0
    avoid: Slot | None = None
    failure: str = ""
    """How the machine failed the last attempt."""
    alone: bool = False
    """Whether it needs a leaf that has run no other program."""
    cancelled: bool = False


@dataclass(slots=True)
class RunningJob:
    """One execution, from the job's start until its leaf is reaped."""

    request: QueuedJob
    leaf: CandidateProcess
    worker: WorkerProcess
    started: float
    deadline: float
    next_look: float
    seen: RunRecord
    starved: float = 0.0
    """Seconds without a core that the deadline makes up for."""
    printed_bytes: int = 0

    def read_printed(self, keep: int) -> bool:
        """Take what the candidate printed, keeping the first `keep` bytes. False at its end."""
        try:
            chunk = os.read(self.leaf.printed, MESSAGE)
        except BlockingIOError:
            return True
        self.seen.printed += chunk[: max(0, keep - len(self.seen.printed))]
        self.printed_bytes += len(chunk)
        return bool(chunk)

    def make_up(self) -> bool:
        """Put the deadline off by the time that the leaf was ready and had no core; False where
        that is none.
        """
        starved = starved_seconds(pid_of(self.leaf.pidfd))
        late = starved - self.starved > 0.01
        if late:
            self.deadline += starved - self.starved
            self.starved = starved
        return late

    def is_frozen(self) -> bool:
        """Whether someone has stopped one of its processes by a signal; a leaf cannot do that
        itself.
        """
        return any(is_stopped(pid_of(process.pidfd)) for process in (self.leaf, self.worker))

    @property
    def sources(self) -> tuple[socket.socket, int, int]:
        """Where it is heard: the worker's reports, the candidate's prints, the candidate's end."""
        return self.worker.control.stream, self.leaf.printed, self.leaf.pidfd

    @property
    def due(self) -> float:
        """When time alone brings something about."""
        return self.deadline if self.seen.stopped else min(self.deadline, self.next_look)

    @property
    def clean(self) -> bool:
        """Whether the worker is as it was before."""
        return (
            self.seen.report is not None
            and bool(self.seen.report["clean"])
            and not self.seen.stopped
        )

    @property
    def refused(self) -> bool:
        """Whether the leaf has not run the program, because it might have found there what another
        left.
        """
        report = self.seen.report
        return (
            report is not None and report["broken"] is not None and report["broken"][0] == "refused"
        )

    @property
    def in_company(self) -> bool:
        """Whether others have run in the leaf before."""
        return self.leaf.jobs > 1

    def is_reusable(self) -> bool:
        """Whether the leaf is as it was before, and may be given another program."""
        report = self.seen.report
        if not (self.clean and report and report["kept"] and self.seen.alive) or self.printed_bytes:
            return False
        return self.leaf.settles(self.seen)


class Slot:
    """A zygote of one kind with its leaves and workers. `failure` says why the zygote never came
    up.

    Slots of one number share a core and take turns.
    """

    def __init__(self, number: int, zygote: str, limits: Limits, required: list[str]) -> None:
        self.number = number
        self.zygote = zygote
        self.stopped = SESSIONS if zygote == INTERPRETER else 0
        """Leaves that may be held beside the one that runs."""
        mine = sorted(os.sched_getaffinity(0))
        core = mine[number % len(mine)]
        self.settings = {
            "required": required,
            "core": core,
            "limits": asdict(limits),
            "reach": asdict(access_rules(number * len(ZYGOTES) + ZYGOTES.index(zygote))),
            "threads": THREADS + self.stopped * (1 + SESSION_THREADS),
        }
        self.forking = 0
        self.candidates: deque[CandidateProcess] = deque()
        self.used: CandidateProcess | None = None
        """A leaf that has run programs which left no trace."""
        self.workers: deque[WorkerProcess] = deque()
        self.unreaped: dict[int, RunningJob] = {}
        self.run: RunningJob | None = None
        self.failure = ""
        self.asked = 0.0
        self.replies_due = 0
        self._start(limits, grouped="group" in required)

    @property
    def free(self) -> bool:
        """Whether a job could start at once."""
        return self.run is None and bool(self.candidates) and bool(self.workers)

    def _start(self, limits: Limits, *, grouped: bool) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-P",
            "-s",
            "-B",
            "-m",
            "assay.judge.warmup",
            str(theirs.fileno()),
            self.zygote,
        ]
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, cwd="/", pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self.group: cgroups.Group | None = None
        if grouped:
            half = (
                os.sysconf("SC_PAGE_SIZE")
                * os.sysconf("SC_PHYS_PAGES")
                // (2 * MIB * len(os.sched_getaffinity(0)))
            )
            held = min(self.stopped * SESSION_MB, half)
            memory_mb = limits.memory_mb + limits.stack_mb + WORKER_MEMORY_MB + LIBRARIES_MB + held
            processes = PROCESSES + self.stopped * (1 + SESSION_THREADS)
            self.group = cgroups.make(f"{self.zygote}{self.number}", memory_mb * MIB, processes)
            with contextlib.suppress(
                ProcessLookupError
            ):  # a zygote that is gone is noticed by reading
                self.group.add(self.process.pid)
        self._say(self.settings)
        for _ in range(0 if self.zygote == INTERPRETER else 2):
            self._say(["worker"])
        self._stock()

    @property
    def runs(self) -> list[RunningJob]:
        """The executions that have begun and are not concluded."""
        return [*self.unreaped.values(), *([self.run] if self.run else [])]

    def begin(self, request: QueuedJob) -> RunningJob:
        """Start a job on a leaf that waits, and ask for the next leaf meanwhile."""
        now, limits = time.monotonic(), request.limits
        worker, leaf = self.workers[0], self.used
        if leaf is None or request.alone or request.order.stdin is not None:
            leaf = self.candidates.popleft()
        else:
            self.used = None
        seen = RunRecord(before=request.failure)
        self.run = RunningJob(
            request,
            leaf,
            worker,
            now,
            now + limits.wall_seconds,
            now + limits.cpu_seconds,
            seen,
            leaf.starved,
        )
        worker.give(leaf, request.order)
        self._stock()
        return self.run

    def taken(self) -> CandidateProcess:
        """A leaf that waits, for someone else to use and to have reaped."""
        leaf = self.candidates.popleft()
        self._stock()
        return leaf

    def reap(self, pids: list[int]) -> None:
        """Have processes reaped that were killed."""
        self._say(["reap", pids])

    def _stock(self) -> None:
        """Ask for leaves when few wait."""
        if len(self.candidates) + self.forking <= CANDIDATES_PER_FORK // 4:
            self.forking += CANDIDATES_PER_FORK
            self._say(["leaf", CANDIDATES_PER_FORK], answers=CANDIDATES_PER_FORK)

    def end(self, run: RunningJob) -> bool:
        """End the execution: whether its leaf is kept for another. Else that is killed and is to be
        reaped.

        The worker too, unless it is as good as new.
        """
        seen = run.seen
        hung_up = (
            seen.report is not None
            and seen.report["broken"] is not None
            and seen.report["broken"][0] == "gone"
        )
        seen.alive = not run.leaf.is_dead(DEATH_SECONDS if hung_up else 0)
        seen.killed_for_memory = (
            not (seen.alive and seen.report) and self.group is not None and self.group.killed()
        )
        seen.wall_seconds = time.monotonic() - run.started
        self.run, ended = None, []
        if kept := self.used is None and run.is_reusable():
            self.used = run.leaf
        else:
            kill(run.leaf.pidfd)
            ended.append(run.leaf.pid)
            self.unreaped[run.leaf.pid] = run
        if not run.clean or run.worker.jobs >= WORKER_JOBS:
            ended.append(self._dismissed(run.worker))
        if ended:
            self.reap(ended)
        return kept

    def _dismissed(self, worker: WorkerProcess) -> int:
        """End a worker and ask for another; its pid, which is to be reaped."""
        self.workers.remove(worker)
        kill(worker.pidfd)
        worker.close()
        self._say(["worker"])
        return worker.pid

    def messages(self) -> list[tuple[str, list[Any]]]:
        """What the zygote has said: `ready`, `failed`, `leaf` and `worker` (taken in here),
        `reaped`, or `died`.

        Raises OSError where this process may open no more descriptors.
        """
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                self.control, MESSAGE, 3, socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return []
        except (
            ConnectionResetError
        ):  # it ended with orders unread; what it said before that is still to be read
            return self.messages()
        except OSError:
            return [("died", [])]
        if not data:
            return [("died", [])]
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.replies_due -= 1
        self.asked = time.monotonic() if self.replies_due else 0.0
        kind, *parts = json.loads(data)
        if kind == "leaf":
            wire, printed, pidfd = descriptors
            self.forking -= 1
            os.set_blocking(printed, False)
            self.candidates.append(CandidateProcess(parts[0], wire, printed, pidfd))
        elif kind == "worker":
            control, pidfd = descriptors
            self.workers.append(
                WorkerProcess(parts[0], BufferedSocket(socket.socket(fileno=control)), pidfd)
            )
        return [(kind, parts)]

    def close(self) -> list[RunningJob]:
        """Kill all and let go of everything; the executions that were under way."""
        runs = self.runs
        used = [self.used] if self.used else []
        processes: list[CandidateProcess | WorkerProcess] = [
            *self.candidates,
            *used,
            *self.workers,
            *(run.leaf for run in runs),
        ]
        for process in processes:
            kill(process.pidfd)
            process.close()
        for held in (self.candidates, self.workers, self.unreaped):
            held.clear()
        self.run = self.used = None
        self.process.kill()
        self.control.close()
        self.process.wait()
        return runs

    def _say(self, message: object, answers: int = 1) -> None:
        self.replies_due += answers
        self.asked = self.asked or time.monotonic()
        with contextlib.suppress(OSError):  # a zygote that is gone is noticed by reading
            self.control.send(json.dumps(message).encode())
