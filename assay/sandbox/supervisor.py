"""Runs programs in slots, enforces their limits and tells how they ended.

It is started by exec and is one loop without threads. It runs no foreign code, knows nothing of
tests, decodes nothing that a program or a companion says, and ends every process when the trainer
hangs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from assay.sandbox import cgroups, kernel, work_dir
from assay.sandbox.ending import NO_PROGRAM, NO_START, ending
from assay.sandbox.limits import Limits
from assay.sandbox.processes import SESSIONS, Events, ZygoteMessage
from assay.sandbox.program import (
    INTERPRETERS,
    Ended,
    Pool,
    Program,
    Result,
    SupervisorSettings,
    message,
    read_message,
)
from assay.sandbox.runs import GRACE_SECONDS, JobQueue, Runs
from assay.sandbox.slot import QueuedJob, RunningJob, Slot
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.zygote import many_files

ZYGOTE_SECONDS = 30.0
"""A zygote that has not answered for so long is replaced."""
UNREAD_BYTES = 16 * kernel.MIB
"""With more results than this that the trainer has not read, no job is started."""
WORK_DIR_SECONDS = 0.02
"""How often to look how full a work folder is that is a plain folder."""
IDLE_SECONDS = 5.0
SESSION_SHARE = 4
"""One in so many of the supervisor's descriptors is for processes that are kept, which take three
each."""
STARTS = 3
"""A zygote that dies so often before its first answer will not come up."""
ZYGOTE_DIED = "the zygote died"


class Supervisor:
    """The loop. `trainer` sends jobs and receives results."""

    def __init__(
        self, trainer: BufferedSocket, limits: Limits, settings: SupervisorSettings
    ) -> None:
        self.trainer = trainer
        self.limits = limits
        self.settings = settings
        self.slots: list[Slot] = []
        self.pools: dict[Pool, int] = {}
        self.queue = JobQueue()
        self.false_starts = 0
        self.events = Events()
        self.events.watch(trainer.stream, self._on_trainer)
        self.runs = Runs(self.events, limits, self._settle)
        self.capacity = min(SESSIONS, many_files() // SESSION_SHARE)

    def loop(self) -> None:
        """Run until the trainer hangs up. Raises OSError where the machine cannot go on."""
        while self.trainer.open:
            self.events.dispatch(self._timeout())
            self._check_time()
            self._assign()
            self.trainer.flush()
            for run in self._running:
                run.channel.flush()

    def close(self) -> None:
        """End every process and wait until none is left."""
        for slot in self.slots:
            slot.close()
        kernel.end_children()
        for slot in self.slots:
            slot.group.remove()

    @property
    def _running(self) -> list[RunningJob]:
        return [slot.run for slot in self.slots if slot.run]

    def _open_slots(self, pool: Pool) -> None:
        """Make as many slots of one pool as it has jobs and processes that are kept, up to the
        width: first such whose turn no other pool takes, and these also in place of free slots
        that would have to wait for their turn.
        """
        there, waits = self._of(pool), self.queue.waiting
        active = [slot for slot in self.slots if slot.run or waits(slot.pool)]
        busy = {slot.turn for slot in active if slot.pool != pool}
        free = [slot.turn for slot in there if not (slot.run or slot.sessions)]
        turns = {(number, pool == INTERPRETERS) for number in range(self.settings.slots)}
        turns -= {slot.turn for slot in there}
        missing = waits(pool) - len(free)
        in_turn = min(missing + len(busy.intersection(free)), len(turns - busy))
        for number, _ in [*sorted(turns - busy), *sorted(turns & busy)][: max(missing, in_turn, 0)]:
            self.slots.append(self._new_slot(number, pool))  # close() must find it

    def _of(self, pool: Pool) -> list[Slot]:
        return [slot for slot in self.slots if slot.pool == pool]

    def _new_slot(self, number: int, pool: Pool) -> Slot:
        family = self.pools.setdefault(pool, len(self.pools)) * self.settings.slots + number
        slot = Slot(number, pool, family, self.limits, self.settings)
        self.events.watch(slot.zygote.control, lambda: self._on_zygote(slot))
        return slot

    def _on_trainer(self) -> None:
        """A number with a job; a number alone cancels that job; number 0 asks for a sign of
        life.
        """
        for frame in self.trainer.receive():
            number, *fields = read_message(frame)
            if fields:
                program = Program(*fields)
                program = program._replace(pool=Pool(*program.pool))
                limits = self.limits.scaled(program.time_factor, program.pool.share)
                if program.wall_seconds:
                    limits = replace(limits, wall_seconds=program.wall_seconds)
                self.queue.add(QueuedJob(number, program, limits))
                self._open_slots(program.pool)
            elif number:
                self._cancel(number)
            else:
                self._send("alive")

    def _cancel(self, number: int) -> None:
        """Drop a job or the process that it left open, wherever it is."""
        self.queue.cancel(number)
        for slot in self.slots:
            for run in slot.runs:
                run.job.cancelled |= number in (run.job.number, run.number)
            if number in slot.sessions:
                slot.end(slot.sessions[number])
            if slot.run and slot.run.job.cancelled:
                self.runs.finish(slot)

    def _assign(self) -> None:
        """Start waiting jobs in free slots; of the slots that take turns, one runs at a time."""
        full = self.trainer.pending > UNREAD_BYTES
        busy = {slot.turn for slot in self.slots if slot.run}
        for slot in [] if full else list(self.slots):
            if slot.turn in busy or not slot.is_free:
                continue
            fits = self._fits if slot.pool != INTERPRETERS else self._goes_on
            job = self.queue.take(slot.pool, fits(slot))
            if job and job.program.session and job.program.session not in slot.sessions:
                self._send_result(job, Result(Ended.LOST, "the interpreter is gone"))
            elif job:
                busy.add(slot.turn)
                self.slots.remove(slot)
                # last in the next round: slots that share a core take turns
                self.slots.append(slot)
                self.runs.begin(slot, job)

    def _fits(self, slot: Slot) -> Callable[[QueuedJob], bool]:
        """Which jobs can start there; a job is retried in another slot if there is one."""
        alone, ready = self._of(slot.pool) == [slot], bool(slot.companions)
        return lambda job: (
            (ready or job.program.companion is None) and (alone or job.avoid is not slot)
        )

    def _goes_on(self, slot: Slot) -> Callable[[QueuedJob], bool]:
        """Which code for processes that are kept can run there: not what others keep; and for a
        new process, only where the fewest are, unless there are too many.
        """
        slots = self._of(slot.pool)
        elsewhere = {number for other in slots if other is not slot for number in other.sessions}
        fewest = min(len(other.sessions) for other in slots if other.is_free)
        if len(slot.sessions) > fewest or sum(len(other.runs) for other in slots) >= self.capacity:
            elsewhere.add(0)
        return lambda job: job.program.session not in elsewhere

    def _on_zygote(self, slot: Slot) -> None:
        """New processes, reaped ones, or the zygote's own end."""
        match slot.zygote.receive():
            case ZygoteMessage("candidate", [pid], descriptors):
                self.false_starts = 0
                slot.add_candidate(pid, *descriptors)
            case ZygoteMessage("companion", [pid], descriptors):
                slot.add_companion(pid, *descriptors)
            case ZygoteMessage("ended", [end, names], files):
                self.runs.on_reaped(slot, kernel.ProcessEnd(*end), names, files)
            case ZygoteMessage("failed", [reason]):
                slot.failure = reason
            case ZygoteMessage("died"):
                self._replace(slot)

    def _settle(self, slot: Slot, run: RunningJob) -> None:
        """All is known of a run: send the result, or retry where the machine failed."""
        job, record = run.job, run.record
        ended, detail = ending(record, job.limits, job.steps)
        if ended is Ended.LOST and self.queue.retry(job, slot, detail):
            return
        status = os.WEXITSTATUS(record.status) if os.WIFEXITED(record.status) else 0
        used = record.cpu_seconds, record.wall_seconds, record.memory_mb
        report = record.report if record.companion or record.waits_for_code else None
        written = report or b"", bytes(record.stdout), bytes(record.stderr)
        errors = record.reported(NO_PROGRAM), record.reported(NO_START)
        session = run.number if record.waits_for_code else 0
        result = Result(ended, detail, status, *used, *written, record.files, *errors, session)
        self._send_result(job, result)
        job.cancelled = record.waits_for_code  # it has been answered, and its process is there

    def _send_result(self, job: QueuedJob, result: Result) -> None:
        """Tell the trainer, unless it has cancelled the job."""
        if not job.cancelled:
            self._send("result", job.number, *result)

    def _send(self, *parts: object) -> None:
        self.trainer.send(message(*parts))

    def _replace(self, slot: Slot) -> None:
        """A zygote is gone: retry its jobs elsewhere, and start a new one. Raises OSError where
        zygotes do not come up.
        """
        self.false_starts += 1
        self.events.unwatch(slot.zygote.control, *(slot.run.sources if slot.run else ()))
        for run in slot.close():
            if not self.queue.retry(run.job, slot, ZYGOTE_DIED):
                self._send_result(run.job, Result(Ended.LOST, ZYGOTE_DIED))
        kernel.reap_ended()  # what dead zygotes have left to us
        if self.false_starts > STARTS * len(self.slots):
            raise OSError(slot.failure or "zygotes die as soon as they are started")
        self.slots[self.slots.index(slot)] = self._new_slot(slot.number, slot.pool)

    def _check_time(self) -> None:
        """Stop runs and interpreters whose time is up; replace zygotes that hang."""
        now = time.monotonic()
        for slot in list(self.slots):
            self.runs.check_time(slot, now)
            if slot.zygote.waiting_since and now > slot.zygote.waiting_since + ZYGOTE_SECONDS:
                self._replace(slot)

    def _timeout(self) -> float:
        """Seconds until the next deadline."""
        if self.trainer.pending or any(run.channel.pending for run in self._running):
            return 0.001
        now = time.monotonic()
        waits = [run.due - now for run in self._running]
        waits += [WORK_DIR_SECONDS for slot in self.slots if slot.work_dir and slot.run]
        return max(0.0, min(waits, default=IDLE_SECONDS))


def main() -> None:
    """Serve the trainer on the inherited descriptor; its settings are an argument."""
    kernel.hide()
    kernel.die_with_parent(os.getppid())
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    many_files()
    cgroups.remove_leftovers()
    work_dir.remove_leftovers()
    stream = socket.socket(fileno=int(sys.argv[1]))
    settings = SupervisorSettings(*json.loads(sys.argv[2]))
    limits, trainer = Limits(**settings.limits), BufferedSocket(stream)
    try:
        supervisor = Supervisor(trainer, limits, settings)
        with contextlib.closing(supervisor):
            supervisor.loop()
    except (OSError, MemoryError) as error:
        stream.settimeout(GRACE_SECONDS)
        trainer.send(message("fatal", str(error) or type(error).__name__))


if __name__ == "__main__":
    main()
