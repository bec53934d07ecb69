"""One place to run a program: a zygote, its idle processes, and at most one running job."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections import deque
from dataclasses import dataclass

from assay.judge.job_queue import QueuedJob
from assay.judge.processes import (
    CandidateProcess,
    Message,
    TimeLimit,
    WorkerProcess,
    ZygoteProcess,
)
from assay.judge.protocol import INTERPRETER, ZYGOTES
from assay.judge.sockets import BufferedSocket
from assay.judge.verdict import LIBRARIES_MB, RunRecord
from assay.sandbox import cgroups
from assay.sandbox.access import access_rules
from assay.sandbox.kernel import MIB
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.walls import THREADS, ProcessLimits
from assay.sandbox.zygote import MESSAGE, ZygoteSettings

WORKER_JOBS = 200
"""Jobs after which a worker is replaced."""
HARMLESS_FAILURES = ("", "hung_up", "compile", "no_code", "error")
"""After any other failure of a program, a worker that has read its replies takes no other job."""
WORKER_MEMORY_MB, WORKER_CPU_SECONDS = 1024, 100_000
REPORT_MB = 256
"""Largest report of a worker that the supervisor reads."""
CANDIDATES_PER_FORK = 4
"""Candidate processes that are forked together."""
SPARE_CPU_SECONDS = 2
"""RLIMIT_CPU beyond the longest time that a task may have: the supervisor's timer is exact."""
PROCESSES = 512
"""Threads that all processes of a slot may have."""
SESSIONS, SESSION_MB, SESSION_THREADS = 512, 128, 3
"""Interpreters that may be open at once, and the memory and further threads that each may hold
while it is stopped: a joined thread may still be exiting."""
DEATH_SECONDS = 0.05
"""How long a process that has hung up may take to be seen dead."""


@dataclass(slots=True)
class RunningJob:
    """One run, from the job's start until its candidate process is reaped."""

    job: QueuedJob
    candidate: CandidateProcess
    worker: WorkerProcess
    time_limit: TimeLimit
    record: RunRecord
    started: float
    printed_bytes: int = 0

    def read_printed(self, keep: int) -> bool:
        """Read what the program printed, and keep the first `keep` bytes. False at its end."""
        try:
            chunk = os.read(self.candidate.printed, MESSAGE)
        except BlockingIOError:
            return True
        self.record.printed += chunk[: max(0, keep - len(self.record.printed))]
        self.printed_bytes += len(chunk)
        return bool(chunk)

    def is_frozen(self) -> bool:
        """Whether someone has stopped a process of it by a signal; programs cannot do that."""
        return self.candidate.is_frozen() or self.worker.is_frozen()

    @property
    def sources(self) -> tuple[socket.socket, int, int]:
        """What to watch: the worker's reports, the program's output, the process's end."""
        return self.worker.control.stream, self.candidate.printed, self.candidate.pidfd

    @property
    def due(self) -> float:
        """When to look at its time next."""
        return self.time_limit.deadline if self.record.stopped else self.time_limit.due

    @property
    def keeps_worker(self) -> bool:
        """Whether the worker may take another job: no code could change it in this one, and it has
        read nothing that a program should not send.
        """
        report = self.record.report
        if report is None or self.record.stopped or report.failed_by not in HARMLESS_FAILURES:
            return False
        return self.job.job.keeps_worker and self.worker.jobs < WORKER_JOBS


class Slot:
    """Slots of one number share a core and take turns; there is one for each kind of zygote."""

    def __init__(self, number: int, kind: str, limits: Limits, required: list[str]) -> None:
        self.number = number
        self.kind = kind
        self.failure = ""
        """Why the zygote never came up."""
        self.candidates: deque[CandidateProcess] = deque()
        self.workers: deque[WorkerProcess] = deque()
        self.unreaped: dict[int, RunningJob] = {}
        self.run: RunningJob | None = None
        self._forking = 0
        sessions = SESSIONS if kind == INTERPRETER else 0
        self.zygote, self.group = ZygoteProcess(kind), None
        if "group" in required:
            self.group = self._make_group(limits, sessions)
            self.zygote.join(self.group)
        self.zygote.send(self._settings(limits, required, sessions))
        for _ in range(0 if kind == INTERPRETER else 2):
            self.zygote.send(["worker"])
        self._refill()

    def _settings(self, limits: Limits, required: list[str], sessions: int) -> ZygoteSettings:
        cores = sorted(os.sched_getaffinity(0))
        cpu_seconds = int(limits.cpu_seconds * LONGEST) + SPARE_CPU_SECONDS
        threads = THREADS + sessions * (1 + SESSION_THREADS)
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ZygoteSettings(
            required,
            core=cores[self.number % len(cores)],
            rules=access_rules(self.number * len(ZYGOTES) + ZYGOTES.index(self.kind)),
            candidate=ProcessLimits(
                cpu_seconds, limits.memory_mb, limits.stack_mb, limits.open_files, threads
            ),
            worker=ProcessLimits(WORKER_CPU_SECONDS, WORKER_MEMORY_MB, limits.stack_mb, files),
        )

    def _make_group(self, limits: Limits, sessions: int) -> cgroups.Group:
        cores = len(os.sched_getaffinity(0))
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (2 * MIB * cores)
        memory_mb = limits.memory_mb + limits.stack_mb + WORKER_MEMORY_MB + LIBRARIES_MB
        memory_mb += min(sessions * SESSION_MB, half)
        processes = PROCESSES + sessions * (1 + SESSION_THREADS)
        return cgroups.make(f"{self.kind}{self.number}", memory_mb * MIB, processes)

    @property
    def free(self) -> bool:
        """Whether a job could start at once."""
        return self.run is None and bool(self.candidates) and bool(self.workers)

    @property
    def runs(self) -> list[RunningJob]:
        """Every run that has started and whose process is not reaped."""
        return [*self.unreaped.values(), *([self.run] if self.run else [])]

    def begin(self, job: QueuedJob) -> RunningJob:
        """Start a job in an idle process."""
        candidate, limits = self.candidates.popleft(), job.limits
        time_limit = TimeLimit.start(candidate, limits.cpu_seconds, limits.wall_seconds)
        record = RunRecord(previous_failure=job.failure)
        worker = self.workers[0]
        self.run = RunningJob(job, candidate, worker, time_limit, record, time.monotonic())
        worker.give(candidate, job.job)
        self._refill()
        return self.run

    def take_candidate(self) -> CandidateProcess:
        """An idle process for the caller, who also has it reaped."""
        candidate = self.candidates.popleft()
        self._refill()
        return candidate

    def reap(self, pids: list[int]) -> None:
        """Have killed processes reaped."""
        self.zygote.send(["reap", pids])

    def note_death(self, candidate: CandidateProcess, record: RunRecord) -> None:
        """Write into a record whether its process is dead, and whether for want of memory."""
        hung_up = record.report is not None and record.report.failed_by == "hung_up"
        record.alive = not candidate.is_dead(DEATH_SECONDS if hung_up and not record.stopped else 0)
        record.killed_for_memory = (
            not (record.alive and record.report) and self.group is not None and self.group.killed()
        )

    def end(self, run: RunningJob) -> None:
        """End a run: its process is killed, and the record is complete once that is reaped."""
        record = run.record
        self.note_death(run.candidate, record)
        record.wall_seconds = time.monotonic() - run.started
        self.run = None
        run.candidate.kill()
        self.unreaped[run.candidate.pid] = run
        replaced = [] if run.keeps_worker else [self._replace_worker(run.worker)]
        self.reap([run.candidate.pid, *replaced])

    def receive(self) -> Message | None:
        """The zygote's next message, if one has come; new processes are taken in here."""
        message = self.zygote.receive()
        if message and message.kind == "candidate":
            sock, printed, pidfd = message.descriptors
            self._forking -= 1
            os.set_blocking(printed, False)
            self.candidates.append(CandidateProcess(message.parts[0], pidfd, sock, printed))
        elif message and message.kind == "worker":
            descriptor, pidfd = message.descriptors
            control = BufferedSocket(socket.socket(fileno=descriptor), REPORT_MB * MIB)
            self.workers.append(WorkerProcess(message.parts[0], pidfd, control))
        return message

    def close(self) -> list[RunningJob]:
        """Kill every process and close every descriptor; returns the runs that had not ended."""
        runs = self.runs
        processes: list[CandidateProcess | WorkerProcess] = [*self.candidates, *self.workers]
        for process in [*processes, *(run.candidate for run in runs)]:
            process.kill()
            process.close()
        self.candidates.clear()
        self.workers.clear()
        self.unreaped.clear()
        self.run = None
        self.zygote.close()
        return runs

    def _refill(self) -> None:
        """Have processes forked when few are idle."""
        if len(self.candidates) + self._forking <= CANDIDATES_PER_FORK // 4:
            self._forking += CANDIDATES_PER_FORK
            self.zygote.send(["candidate", CANDIDATES_PER_FORK], replies=CANDIDATES_PER_FORK)

    def _replace_worker(self, worker: WorkerProcess) -> int:
        """Kill a worker and have another forked; the pid to be reaped."""
        self.workers.remove(worker)
        worker.kill()
        worker.close()
        self.zygote.send(["worker"])
        return worker.pid
