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
from assay.sandbox.ending import LIBRARIES_MB, NO_PROGRAM, NO_START, OWN_MB, ending
from assay.sandbox.events import Events
from assay.sandbox.limits import Limits
from assay.sandbox.processes import SESSIONS
from assay.sandbox.program import (
    BY_MACHINE,
    INTERPRETERS,
    Ended,
    Pool,
    Program,
    Result,
    SupervisorSettings,
)
from assay.sandbox.program_queue import ProgramQueue
from assay.sandbox.runs import GRACE_SECONDS, RunWatch
from assay.sandbox.slot import WATCH_SECONDS, QueuedProgram, RunningProgram, Slot
from assay.sandbox.slot_shares import SlotShares, Weight
from assay.sandbox.sockets import BufferedSocket, message, read_message
from assay.sandbox.zygote import many_files
from assay.sandbox.zygote_process import ZygoteMessage

ZYGOTE_SECONDS = 30.0
"""A zygote that has not answered for so long is replaced."""
UNREAD_BYTES = 16 * kernel.MIB
"""With more results than this that the trainer has not read, no program is started."""
IDLE_SECONDS = 5.0
SESSION_SHARE = 4
"""One in so many of the supervisor's descriptors is for processes that are kept, which take three
each."""
STARTS = 3
"""A zygote that dies so often before its first answer will not come up."""
SOON_SECONDS = 0.002
ZYGOTE_DIED = "the zygote died"


class Supervisor:
    """The loop. `trainer` sends programs and receives results."""

    def __init__(
        self, trainer: BufferedSocket, limits: Limits, settings: SupervisorSettings
    ) -> None:
        self.trainer = trainer
        self.limits = limits
        self.settings = settings
        self.slots: list[Slot] = []
        self.pools: dict[Pool, int] = {}
        self.shares = SlotShares(settings.slots, lambda: self._running)
        self.queue = ProgramQueue(self.shares.used)
        self.false_starts = 0
        self.events = Events()
        self.events.watch(trainer.stream, self._on_trainer)
        self.runs = RunWatch(self.events, limits, self._settle)
        self.next_look = 0.0
        self.looked, self.due = time.monotonic(), 0.0
        """When the time of runs and zygotes was looked at last, and when it is to be next."""
        self.capacity = min(SESSIONS, many_files() // SESSION_SHARE)

    def loop(self) -> None:
        """Run until the trainer hangs up. Raises OSError where the machine cannot go on."""
        while self.trainer.open:
            self.events.dispatch(self._timeout())
            self._check_time()
            self._assign()
            self._make_way()
            self.trainer.flush()
            for run in self._running:
                run.channel.flush()

    def close(self) -> None:
        """End every process and wait until none is left."""
        for slot in self.slots:
            slot.close()
        kernel.end_children()
        for slot in self.slots:
            slot.group.remove(cgroups.ENDED_SECONDS)

    @property
    def _running(self) -> list[RunningProgram]:
        return [slot.run for slot in self.slots if slot.run]

    def _open_slots(self, pool: Pool) -> None:
        """Make as many slots of one pool as it has programs and processes that are kept, up to the
        width: first such whose turn no other pool takes, and these also in place of free slots
        that would have to wait for their turn.
        """
        there, waits = self._of(pool), self.queue.waiting
        if len(there) >= self.settings.slots:
            return  # as nearly always
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
        """A number with a client and a program; a number alone cancels that program; number 0 asks
        for a sign of life.
        """
        for frame in self.trainer.receive():
            number, *fields = read_message(frame)
            if fields:
                client, *of_program = fields
                program = Program(*of_program)
                program = program._replace(pool=Pool(*program.pool))
                limits = self.limits.scaled(program.time_factor, program.pool.share)
                if program.wall_seconds:
                    limits = replace(limits, wall_seconds=program.wall_seconds)
                now = time.monotonic()
                self.queue.add(QueuedProgram(number, program, limits, client, now))
                self._open_slots(program.pool)
            elif number:
                self._cancel(number)
            else:
                self._send("alive")

    def _cancel(self, number: int) -> None:
        """Drop a program or the process that it left open, wherever it is."""
        self.queue.cancel(number)
        for slot in self.slots:
            for run in slot.runs:
                run.queued.cancelled |= number in (run.queued.number, run.number)
            if number in slot.sessions:
                slot.end(slot.sessions[number])
            if slot.run and slot.run.queued.cancelled:
                self.runs.finish(slot)

    def _assign(self) -> None:
        """Start waiting programs in free slots; of those that take turns, one runs at a time."""
        if self.trainer.pending > UNREAD_BYTES:
            return
        free = [slot for slot in self.slots if slot.is_free]
        if not free:
            return  # as nearly always
        busy = {slot.turn for slot in self.slots if slot.run}
        waits = self.queue.waiting
        free = [slot for slot in free if slot.turn not in busy and waits(slot.pool)]
        while free:
            slot = free[0]
            if len(free) > 1:
                slot = min(free, key=lambda slot: self.queue.least_used(slot.pool))
            free.remove(slot)
            fits = self._fits if slot.pool != INTERPRETERS else self._goes_on
            queued = self.queue.take(slot.pool, fits(slot))
            if queued and queued.program.session and queued.program.session not in slot.sessions:
                self._send_result(queued, Result(Ended.LOST, "the interpreter is gone"))
            elif queued:
                free = [other for other in free if other.turn != slot.turn and waits(other.pool)]
                self.slots.remove(slot)
                # last in the next round: slots that share a core take turns
                self.slots.append(slot)
                self.shares.begin(queued)
                self.runs.begin(slot, queued)

    def _make_way(self) -> None:
        """Let others go before the runs of those that have used much. Where every slot is busy,
        stop a run for a client that has used much less; where one is not, give the pool of what
        waits a slot there.
        """
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + WATCH_SECONDS
        for run in self._running:
            if run.may_give_way and self.shares.goes_last(run.queued):
                run.give_way(self.shares.weight(run.queued) is Weight.HEAVY)
        first = [queued for queued in self.queue.first_of_each()
                 if queued.program.session is None and not queued.was_stopped]  # fmt: skip
        if not first:
            return
        waiting = first[0]
        if len(first) > 1:
            waiting = min(first, key=lambda queued: self.shares.used(queued.client))
        running = {slot.turn: slot for slot in self.slots if slot.run}
        if sum(not is_interpreter for _, is_interpreter in running) < self.settings.slots:
            self._open_slots(waiting.program.pool)
            self.next_look = now + SOON_SECONDS  # one is free, or will be: it may have no process
            return
        here = [running[slot.turn] for slot in self._of(waiting.program.pool)
                if slot.turn in running]  # fmt: skip
        stopped = self.shares.to_stop(waiting, [slot.run for slot in here if slot.run])
        if stopped is not None:
            stopped.queued.stopped_at, stopped.record.stopped = now, Ended.GAVE_WAY
            self.runs.finish(next(slot for slot in here if slot.run is stopped))

    def _fits(self, slot: Slot) -> Callable[[QueuedProgram], bool]:
        """Which programs can start there; a program is retried in another slot if there is one."""
        alone, ready = self._of(slot.pool) == [slot], bool(slot.companions)
        may_start = self.shares.may_start()
        return lambda queued: (
            (ready or queued.program.companion is None)
            and (alone or queued.avoid is not slot)
            and may_start(queued)
        )

    def _goes_on(self, slot: Slot) -> Callable[[QueuedProgram], bool]:
        """Which code for processes that are kept can run there: not what others keep; and for a
        new process, only where the fewest are, unless there are too many.
        """
        slots = self._of(slot.pool)
        elsewhere = {number for other in slots if other is not slot for number in other.sessions}
        fewest = min(len(other.sessions) for other in slots if other.is_free)
        if len(slot.sessions) > fewest or sum(len(other.runs) for other in slots) >= self.capacity:
            elsewhere.add(0)
        return lambda queued: queued.program.session not in elsewhere

    def _on_zygote(self, slot: Slot) -> None:
        """New processes, reaped ones, or the zygote's own end."""
        match slot.zygote.receive():
            case ZygoteMessage("candidate", pids, descriptors):
                self.false_starts = 0
                slot.add_candidates(pids, descriptors)
            case ZygoteMessage("companion", [pid], descriptors):
                slot.add_companion(pid, *descriptors)
            case ZygoteMessage("ended", [end, statuses, names], files):
                self.runs.on_reaped(slot, kernel.ProcessEnd(*end), statuses, names, files)
            case ZygoteMessage("failed", [reason]):
                slot.failure = reason
            case ZygoteMessage("died"):
                self._replace(slot)

    def _settle(self, slot: Slot, run: RunningProgram) -> None:
        """All is known of a run: send the result, or run the program anew where it has given way
        or the machine failed.
        """
        queued, record = run.queued, run.record
        self.shares.end(queued)
        if record.stopped is Ended.GAVE_WAY:
            self.queue.put_back(queued)
            return
        libraries_mb = OWN_MB if queued.program.executable else LIBRARIES_MB
        ended, detail = ending(record, queued.limits, queued.steps, libraries_mb)
        if ended in BY_MACHINE and self.queue.retry(queued, slot, ended):
            return
        status = os.WEXITSTATUS(record.status) if os.WIFEXITED(record.status) else 0
        used = record.cpu_seconds, record.wall_seconds, record.memory_mb
        report = record.report if record.companion or record.waits_for_code else None
        written = report or b"", bytes(record.stdout), bytes(record.stderr)
        errors = record.reported(NO_PROGRAM), record.reported(NO_START)
        session = run.number if record.waits_for_code else 0
        marks = record.answer_ran, record.was_asked
        result = Result(
            ended, detail, status, *used, *written, record.files, *errors, session, *marks
        )
        self._send_result(queued, result)
        queued.cancelled = record.waits_for_code  # it has been answered, and its process is there

    def _send_result(self, queued: QueuedProgram, result: Result) -> None:
        """Tell the trainer, unless it has cancelled the program."""
        if not queued.cancelled:
            self._send("result", queued.number, *result)

    def _send(self, *parts: object) -> None:
        self.trainer.send(message(*parts))

    def _replace(self, slot: Slot) -> None:
        """A zygote is gone: retry its programs elsewhere, and start a new one. Raises OSError where
        zygotes do not come up.
        """
        self.false_starts += 1
        self.events.unwatch(slot.zygote.control, *(slot.run.sources if slot.run else ()))
        for run in slot.close():
            self.shares.end(run.queued)
            if run.record.stopped is Ended.GAVE_WAY:
                self.queue.put_back(run.queued)
            elif not self.queue.retry(run.queued, slot, Ended.LOST):
                self._send_result(run.queued, Result(Ended.LOST, ZYGOTE_DIED))
        kernel.reap_ended()  # what dead zygotes have left to us
        if self.false_starts > STARTS * len(self.slots):
            raise OSError(slot.failure or "zygotes die as soon as they are started")
        self.slots[self.slots.index(slot)] = self._new_slot(slot.number, slot.pool)

    def _check_time(self) -> None:
        """Stop runs and interpreters whose time is up; replace zygotes that hang."""
        now = time.monotonic()
        if now < self.due:
            return
        self.looked = now
        for slot in list(self.slots):
            self.runs.check_time(slot, now)
            if slot.zygote.waiting_since and now > slot.zygote.waiting_since + ZYGOTE_SECONDS:
                self._replace(slot)

    def _timeout(self) -> float:
        """Seconds until the next deadline."""
        running = self._running
        self.due = self.looked + IDLE_SECONDS
        for run in running:
            self.due = min(self.due, run.due, run.next_watch)
        if self.trainer.pending or any(run.channel.pending for run in running):
            return 0.001
        return max(0.0, self.due - time.monotonic())


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
