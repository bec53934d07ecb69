"""One place to run a program: a zygote, its idle processes, and at most one running program."""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from assay.sandbox import cgroups, kernel
from assay.sandbox.access import access_rules
from assay.sandbox.ending import LIBRARIES_MB, MISTREATED, RunRecord
from assay.sandbox.kernel import MIB, ProcessEnd
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.namespaces import WORK_DIR, AccessRules
from assay.sandbox.processes import (
    REPLY_BYTES,
    SESSION_MB,
    SESSION_THREADS,
    SESSIONS,
    CandidateProcess,
    CompanionProcess,
    is_stopped,
    pid_of,
    starved_seconds,
)
from assay.sandbox.program import (
    EXEC,
    INTERPRETERS,
    RESERVE_MB,
    RUNTIME_MB,
    Ended,
    Pool,
    Program,
    SupervisorSettings,
)
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.time_limit import TimeLimit
from assay.sandbox.users import claim_user
from assay.sandbox.walls import THREADS, ProcessLimits
from assay.sandbox.work_dir import make_work_dir, remove_work_dir
from assay.sandbox.zygote import MESSAGE, ZygoteSettings
from assay.sandbox.zygote_process import ZygoteProcess

LAUNCHER = "assay.sandbox.launch"
COMPANION_JOBS = 200
"""Jobs after which a companion is replaced."""
COMPANION_MEMORY_MB, COMPANION_CPU_SECONDS = 1024, 100_000
REPORT_MB = 256
"""Largest report of a companion that the supervisor reads."""
CANDIDATES_PER_FORK = 4
"""Candidate processes that are forked together."""
SPARE_CPU_SECONDS = 2
"""RLIMIT_CPU beyond the longest time that a task may have: the supervisor's timer is exact."""
PROCESSES = 512
"""Threads that all processes of a slot may have."""
WATCH_SECONDS = 0.02
"""How often to look at the memory that a run uses, and how full its folder is."""
NICENESS = 10
"""Of the programs of a client that has used much, where others ask too."""
DEATH_SECONDS = 0.05
"""How long a process that has hung up may take to be found dead."""


@dataclass(slots=True)
class QueuedProgram:
    """One program from the trainer, and what has happened to it so far."""

    number: int
    program: Program
    limits: Limits
    client: str = ""
    """Who waits for its result."""
    came: float = 0.0
    """When it came, on the monotonic clock."""
    stopped_at: float = 0.0
    """When its first run was stopped to let others go first; 0 where it was not."""
    avoid: object = None
    """The slot in which the machine failed it."""
    failure: Ended | None = None
    """How the machine failed the first attempt; None before."""
    cancelled: bool = False
    """Whether nobody waits for its result."""

    @property
    def was_stopped(self) -> bool:
        """Whether its first run was stopped to let others go first."""
        return self.stopped_at > 0

    @property
    def steps(self) -> float:
        """How many times its time limits all steps together have: no more than a program with the
        largest time factor.
        """
        return min(self.program.steps, LONGEST * self.program.pool.share / self.program.time_factor)


@dataclass(slots=True)
class RunningProgram:
    """One run, from the program's start until its candidate process is reaped or gets another."""

    queued: QueuedProgram
    candidate: CandidateProcess
    companion: CompanionProcess | None
    channel: BufferedSocket
    """Where reports come from: the companion's socket, or else the program's own, which says only
    why it cannot start."""
    stdout: int
    """The descriptor of the standard output of a program that stands alone, which is all that one
    in a process that is kept prints; else -1."""
    time_limit: TimeLimit
    record: RunRecord
    started: float
    next_watch: float
    """When to look at its memory and its folder next, on the monotonic clock."""
    slow: set[int] = field(default_factory=set)
    """Descriptors of its processes before which those of others go, for good."""
    printed_bytes: int = 0

    def read_output(self, source: int, keep: int) -> bool:
        """Read what the program wrote, and keep the first `keep` bytes. False at its end."""
        stream = self.record.stdout if source == self.stdout else self.record.stderr
        try:
            chunk = os.read(source, MESSAGE)
        except BlockingIOError:
            return True
        stream += chunk[: max(0, keep - len(stream))]
        self.printed_bytes += len(chunk)
        return bool(chunk)

    def fetch(self, name: str, file: BinaryIO) -> None:
        """Read a file that it made, unless its files are too large together."""
        most, used = self.queued.program.fetch_mb, sum(map(len, self.record.files.values()))
        if used + os.fstat(file.fileno()).st_size <= most * MIB:
            self.record.files[name] = file.read()
        elif not self.record.stopped:
            self.record.why = f"wrote more than {most} MiB into {name!r}"
            self.record.stopped = Ended.PRINTED

    def is_frozen(self) -> bool:
        """Whether someone has stopped a process of it by a signal; programs cannot do that."""
        processes = [process for process in (self.companion, self.candidate) if process]
        return any(is_stopped(pid_of(process.pidfd)) for process in processes)

    @property
    def has_started(self) -> bool:
        """Whether the program's own code may run: what stands alone hangs up before it does."""
        alone = self.companion is None and self.queued.program.session is None
        return not (alone and self.channel.open)

    @property
    def can_start_anew(self) -> bool:
        """Whether its program may be stopped now and run from its start later, for the first time:
        not what goes on in a process that is kept, nor what has ended.
        """
        is_over = self.record.stopped or self.record.report is not None
        return not (is_over or self.queued.was_stopped) and self.queued.program.session is None

    @property
    def outputs(self) -> list[int]:
        """Descriptors of what the program writes."""
        return sorted({self.candidate.printed, self.stdout} - {-1})

    @property
    def sources(self) -> tuple[socket.socket | int, ...]:
        """What to watch: reports, the program's output, the process's end."""
        return self.channel.stream, self.candidate.pidfd, *self.outputs

    @property
    def number(self) -> int:
        """Of the program that its process began with."""
        return self.queued.program.session or self.queued.number

    @property
    def evades_memory(self) -> float:
        """MiB in use, where that is more than it may use; else 0. RLIMIT_DATA counts no stack that
        was moved, and a program may raise it to reserve stacks.
        """
        limits, used_mb = self.queued.limits, self.candidate.used_mb
        most_mb = limits.memory_mb + limits.stack_mb + self.queued.program.runtime_mb
        return used_mb * (used_mb > most_mb)

    @property
    def due(self) -> float:
        """When to look at its time next."""
        return self.time_limit.deadline if self.record.stopped else self.time_limit.due

    @property
    def keeps_companion(self) -> bool:
        """Whether the companion may take another job: no code could change it in this one, and it
        has read nothing that a program should not send.
        """
        report = self.record.report
        if self.companion is None or report is None or self.record.stopped:
            return self.companion is None
        if self.record.answer_ran or self.companion.is_slow:
            return False
        unharmed = report[:1] != MISTREATED and self.companion.jobs < COMPANION_JOBS
        return unharmed and self.queued.program.keeps_companion

    @property
    def may_give_way(self) -> bool:
        """Whether it has not done so yet, and loses no time by it: that in which it waits for a
        core is given back, unless its own limit is one of wall time, or other programs work for it.
        """
        program = self.queued.program
        is_done = len(self.slow) > (self.companion is not None)
        return not (is_done or program.wall_seconds or program.pool == EXEC)

    def give_way(self, with_companion: bool) -> None:
        """Let the processes of others go before the program, and before what tests it where that is
        wanted, where there are too few cores.
        """
        processes: list[CandidateProcess | CompanionProcess] = [self.candidate]
        if with_companion and self.companion is not None:
            self.companion.is_slow = True
            processes.append(self.companion)
        for process in processes:
            if process.pidfd not in self.slow and kernel.give_way(
                process.number, NICENESS, process.session
            ):
                self.slow.add(process.pidfd)

    def close(self) -> None:
        """Close every descriptor but the companion's."""
        for descriptor in {self.stdout} - {-1, self.candidate.printed}:
            os.close(descriptor)
        self.candidate.close()


class Slot:
    """Slots of one number share a core and take turns, but for interpreters, which run beside them.
    There is one for each pool.

    family: its number among all slots.
    """

    def __init__(
        self, number: int, pool: Pool, family: int, limits: Limits, settings: SupervisorSettings
    ) -> None:
        required = settings.required
        self.number = number
        self.pool = pool
        self.turn = number, pool == INTERPRETERS
        """Of slots with the same one, one runs at a time."""
        self.failure = ""
        """Why the zygote never came up."""
        self.candidates: deque[CandidateProcess] = deque()
        self.companions: deque[CompanionProcess] = deque()
        self.unreaped: dict[int, RunningProgram] = {}
        self.run: RunningProgram | None = None
        self.sessions: dict[int, RunningProgram] = {}
        """The last runs in processes that wait for more code, by the number of their first program.
        """
        self._shows = os.getuid() != 0 and pool not in (EXEC, INTERPRETERS)
        """Whether the niceness of its processes' sessions is set, by a file that only root could
        open later."""
        self._shows &= kernel.weighs_sessions()
        self._forking = 0
        self._claim = claim_user()
        user = self._claim.user
        most_sessions = SESSIONS if pool == INTERPRETERS else 0
        self.work_dir = ""
        """The folder of its programs, where they may write files and it is ours to watch."""
        if pool.writes and "namespaces" not in required:
            self.work_dir = make_work_dir(user if "user" in required else None)
        work_dir = self.work_dir or (WORK_DIR if pool.writes else "")
        reads, module = (settings.reads, LAUNCHER) if pool == EXEC else ((), settings.zygote)
        rules = access_rules(user, work_dir, reads, pool == EXEC, required)
        self.zygote, self.group = ZygoteProcess(module, pool), cgroups.Group(())
        if "group" in required:
            self.group = self._make_group(family, limits, most_sessions)
        self.zygote.join(self.group)
        self.zygote.send(self._settings(limits, required, rules, most_sessions))
        for _ in range(0 if pool in (INTERPRETERS, EXEC) else 2):
            self.zygote.send(["companion", 1])
        self._refill()

    def _settings(
        self, limits: Limits, required: list[str], rules: AccessRules, most_sessions: int
    ) -> ZygoteSettings:
        cores = sorted(os.sched_getaffinity(0))
        cpu_seconds = int(limits.cpu_seconds * LONGEST * self.pool.share) + SPARE_CPU_SECONDS
        is_exec, memory_mb = self.pool == EXEC, limits.memory_mb * self.pool.share
        deepest_mb = memory_mb // 2 * is_exec
        memory_mb += (RUNTIME_MB + RESERVE_MB) * is_exec
        reserve_mb = RESERVE_MB * (not is_exec)
        threads = THREADS + most_sessions * (1 + SESSION_THREADS)
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ZygoteSettings(
            required,
            core=cores[self.number % len(cores)],
            rules=rules,
            candidate=ProcessLimits(
                cpu_seconds,
                memory_mb,
                limits.stack_mb,
                limits.open_files,
                threads,
                deepest_mb,
                reserve_mb,
            ),
            companion=ProcessLimits(
                COMPANION_CPU_SECONDS, COMPANION_MEMORY_MB, limits.stack_mb, files
            ),
            shown=self._shows,
        )

    def _make_group(self, family: int, limits: Limits, most_sessions: int) -> cgroups.Group:
        cores = len(os.sched_getaffinity(0))
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (2 * MIB * cores)
        memory_mb = (
            limits.memory_mb * self.pool.share
            + limits.stack_mb
            + COMPANION_MEMORY_MB
            + LIBRARIES_MB
        )
        memory_mb += min(most_sessions * SESSION_MB, half)
        processes = PROCESSES + most_sessions * (1 + SESSION_THREADS)
        return cgroups.make(f"slot{family}", memory_mb * MIB, processes)

    @property
    def is_free(self) -> bool:
        """Whether a program that needs no companion could start here at once."""
        if self.run or not self.candidates:
            return False
        return not (self.pool.writes and self.unreaped)  # the last program's files are still there

    @property
    def runs(self) -> list[RunningProgram]:
        """Every run that has started and whose process is not reaped."""
        running = [self.run] if self.run else []
        return [*self.unreaped.values(), *self.sessions.values(), *running]

    def begin(self, queued: QueuedProgram) -> RunningProgram:
        """Start a program in an idle process, or in one that was kept for it."""
        program, limits, companion = queued.program, queued.limits, None
        before = self.sessions.pop(program.session or 0, None)
        candidate = before.candidate if before else self.candidates.popleft()
        starved, cpu_seconds = math.inf if program.wall_seconds else 0.0, limits.cpu_seconds
        record = RunRecord(
            program.companion is not None, was_killed=queued.failure is Ended.KILLED,
            was_lost=queued.failure is Ended.LOST,
        )  # fmt: skip
        if program.session is not None:
            starved = starved_seconds(pid_of(candidate.pidfd))
            cpu_seconds = min(cpu_seconds, LONGEST * cpu_seconds - candidate.spent)
        time_limit = TimeLimit(candidate, cpu_seconds, limits.wall_seconds, starved, queued.steps)
        if program.session is not None:
            channel = before.channel if before else BufferedSocket(candidate.sock, REPLY_BYTES)
            stdout = candidate.printed
            candidate.kill(signal.SIGCONT)
            channel.send(program.payload)
        elif program.companion is None:
            channel, stdout = candidate.start(program)
        else:
            companion, stdout = self.companions[0], -1
            companion.give(candidate, program.companion)
            channel = companion.control
        now = time.monotonic()
        self.run = RunningProgram(
            queued, candidate, companion, channel, stdout, time_limit, record, now,
            now + WATCH_SECONDS,
        )  # fmt: skip
        self._refill()
        return self.run

    def keep(self, run: RunningProgram) -> None:
        """Leave the process of a run for the next one."""
        run.record.waits_for_code = run.record.alive = True
        self.run, self.sessions[run.number] = None, run

    def complete(self, run: RunningProgram, end: ProcessEnd) -> None:
        """Write into a run's record how its process has ended, and whether for want of memory."""
        record = run.record
        record.status, record.memory_mb = end.status, end.memory_mb
        record.cpu_seconds = end.cpu_seconds - run.candidate.spent
        died = not record.alive and os.WTERMSIG(end.status) == signal.SIGKILL
        died |= record.companion and record.report is None
        record.killed_for_memory = died and self.group.killed()

    def end(self, run: RunningProgram) -> None:
        """End a run: its process is killed, and the record is complete once that is reaped."""
        record = run.record
        record.alive = is_alive(run.candidate, record)
        if run.companion and record.report is None and not record.stopped:
            # one that has hung up may be just ending
            record.companion_alive = not run.companion.is_dead(DEATH_SECONDS)
        record.wall_seconds = time.monotonic() - run.started
        self.sessions.pop(run.number, None)
        self.run = None if self.run is run else self.run
        run.candidate.kill()
        self.unreaped[run.candidate.pid] = run
        replaced = []
        if run.companion is not None and not run.keeps_companion:
            replaced = [self._replace_companion(run.companion)]
        self.zygote.send(["end", [run.candidate.pid, *replaced], run.queued.program.fetch])

    def add_candidates(self, pids: Sequence[int], descriptors: Sequence[int]) -> None:
        """Take in new processes with the descriptors of each: its socket, its output, a pidfd."""
        self._forking -= len(pids)
        of_each = zip(*[iter(descriptors)] * 3, strict=True)
        for pid, (sock, printed, pidfd) in zip(pids, of_each, strict=True):
            os.set_blocking(printed, False)
            stream = socket.socket(fileno=sock)
            session = self._session(pidfd)
            self.candidates.append(CandidateProcess(pid, pidfd, stream, printed, session=session))

    def add_companion(self, pid: int, control: int, pidfd: int) -> None:
        """Take in a new companion with its descriptors."""
        stream = BufferedSocket(socket.socket(fileno=control), REPORT_MB * MIB)
        self.companions.append(CompanionProcess(pid, pidfd, stream, session=self._session(pidfd)))

    def close(self) -> list[RunningProgram]:
        """Kill every process and close every descriptor; returns the runs that had not ended."""
        runs = self.runs
        idle: list[CandidateProcess | CompanionProcess] = [*self.candidates, *self.companions]
        for process in [*idle, *(run.candidate for run in runs)]:
            process.kill()
            if self.work_dir:
                process.kill_group()
        for open_one in [*runs, *idle]:
            open_one.close()
        self.candidates.clear()
        self.companions.clear()
        self.unreaped.clear()
        self.sessions.clear()
        self.run = None
        self.zygote.close()
        if self.work_dir:
            remove_work_dir(self.work_dir)
        self._claim.release()
        return runs

    def _session(self, pidfd: int) -> int:
        """A descriptor by which to set the niceness of the session of a new process; else -1."""
        try:
            return kernel.session_file(pid_of(pidfd)) if self._shows else -1
        except OSError:  # it has ended
            return -1

    def _refill(self) -> None:
        """Have processes forked when few are idle."""
        if len(self.candidates) + self._forking <= CANDIDATES_PER_FORK // 4:
            self._forking += CANDIDATES_PER_FORK
            self.zygote.send(["candidate", CANDIDATES_PER_FORK])

    def _replace_companion(self, companion: CompanionProcess) -> int:
        """Kill a companion and have another forked; the pid to be reaped."""
        self.companions.remove(companion)
        companion.kill()
        companion.close()
        self.zygote.send(["companion", 1])
        return companion.pid


def is_alive(candidate: CandidateProcess, record: RunRecord) -> bool:
    """Whether a process whose run ends still lives. One that has hung up may be just ending."""
    wait = record.hung_up and not record.stopped
    return not candidate.is_dead(DEATH_SECONDS if wait else 0)
