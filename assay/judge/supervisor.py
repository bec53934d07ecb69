"""Runs jobs in slots, enforces their limits and decides their verdicts.

It is started by exec and is one loop without threads. It runs no foreign code, forwards jobs
unread, never decodes a value of a candidate's, and ends every process when the trainer hangs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from assay.judge.job_queue import JobQueue, QueuedJob
from assay.judge.processes import Events, kill_children
from assay.judge.protocol import (
    INTERPRETER,
    JobResult,
    SupervisorSettings,
    unpack_job,
)
from assay.judge.runs import GRACE_SECONDS, Runs
from assay.judge.sessions import Sessions
from assay.judge.slot import RunningJob, Slot
from assay.judge.sockets import BufferedSocket
from assay.judge.verdict import decide
from assay.sandbox import cgroups, kernel
from assay.sandbox.limits import Limits
from assay.sandbox.zygote import ProcessEnd, many_files
from assay.types import Execution, Verdict

ZYGOTE_SECONDS = 30.0
"""A zygote that has not answered for so long is replaced."""
UNREAD_BYTES = 16 * kernel.MIB
"""With more results than this that the trainer has not read, no job is started."""
STARTS = 3
"""A zygote that dies so often before its first answer will not come up."""
ZYGOTE_DIED = "the zygote died"
PR_SET_CHILD_SUBREAPER = 36
NUMBER_BYTES = 4


class Supervisor:
    """The loop. `trainer` sends jobs and receives results."""

    def __init__(
        self, trainer: BufferedSocket, limits: Limits, slots: int, required: list[str]
    ) -> None:
        self.trainer = trainer
        self.limits = limits
        self.required = required
        self.width = slots
        self.slots: list[Slot] = []
        self.queue = JobQueue()
        self.false_starts = 0
        self.events = Events()
        self.events.watch(trainer.stream, self._on_trainer)
        self.runs = Runs(self.events, limits, self._settle)
        self.sessions = Sessions(self.events, partial(self._send, "block"), many_files())

    def loop(self) -> None:
        """Run until the trainer hangs up. Raises OSError where the machine cannot go on."""
        self._open_slots("plain")
        while self.trainer.open:
            self.events.dispatch(self._timeout())
            self._check_time()
            self._assign()
            self.sessions.assign([slot for slot in self.slots if slot.kind == INTERPRETER])
            self.trainer.flush()
            for run in self._running:
                run.worker.control.flush()

    def close(self) -> None:
        """End every process and wait until none is left."""
        for slot in self.slots:
            slot.close()
        with contextlib.suppress(ChildProcessError):
            while True:
                kill_children()
                os.wait()
        for slot in self.slots:
            if slot.group is not None:
                slot.group.remove()

    @property
    def _running(self) -> list[RunningJob]:
        return [slot.run for slot in self.slots if slot.run]

    def _open_slots(self, kind: str) -> None:
        """Make the slots of one kind, unless they exist."""
        if not any(slot.kind == kind for slot in self.slots):
            for number in range(self.width):  # one by one: close() must find them if one fails
                self.slots.append(self._new_slot(number, kind))

    def _new_slot(self, number: int, kind: str) -> Slot:
        slot = Slot(number, kind, self.limits, self.required)
        self.events.watch(slot.zygote.control, lambda: self._on_zygote(slot))
        return slot

    def _on_trainer(self) -> None:
        """A number with a job; a number alone cancels that job; number 0 asks for a sign of
        life.
        """
        for frame in self.trainer.receive():
            number, payload = int.from_bytes(frame[:NUMBER_BYTES], "big"), frame[NUMBER_BYTES:]
            if payload:
                job = unpack_job(payload)
                self._open_slots(job.zygote)
                queued = QueuedJob(number, job, self.limits.scaled(job.time_factor))
                if job.zygote == INTERPRETER:
                    self.sessions.add(queued)
                else:
                    self.queue.add(queued)
            elif number:
                self._cancel(number)
            else:
                self._send("alive")

    def _cancel(self, number: int) -> None:
        """Drop a job or an interpreter, wherever it is."""
        self.sessions.cancel(number)
        self.queue.cancel(number)
        for slot in self.slots:
            for run in slot.runs:
                run.job.cancelled |= run.job.number == number
            if slot.run and slot.run.job.cancelled:
                self.runs.finish(slot)

    def _assign(self) -> None:
        """Start waiting jobs in free slots; of the slots that share a core, one runs at a time."""
        busy = {slot.number for slot in self.slots if slot.run}
        for slot in list(self.slots):
            if slot.number in busy or not slot.free or self.trainer.pending > UNREAD_BYTES:
                continue
            if job := self.queue.take(partial(self._can_run, slot)):
                busy.add(slot.number)
                self.slots.remove(slot)
                self.slots.append(
                    slot
                )  # last in the next round: slots that share a core take turns
                self.runs.begin(slot, job)

    def _can_run(self, slot: Slot, job: QueuedJob) -> bool:
        """Whether the slot is of the right kind; a job is retried in another slot if there is
        one.
        """
        return slot.kind == job.job.zygote and (job.avoid is not slot or self.width == 1)

    def _on_zygote(self, slot: Slot) -> None:
        """New processes, reaped ones, or the zygote's own end."""
        message = slot.receive()
        if message is None:
            return
        if message.kind == "candidate":
            self.false_starts = 0
        elif message.kind == "reaped":
            end = ProcessEnd(*message.parts[0])
            self.sessions.on_reaped(slot, end)
            self.runs.on_reaped(slot, end)
        elif message.kind == "failed":
            slot.failure = str(message.parts[0])
        elif message.kind == "died":
            self._replace(slot)

    def _settle(self, slot: Slot, run: RunningJob) -> None:
        """All is known of a run: send the result, or retry where the machine failed."""
        job, record = run.job, run.record
        execution = decide(record, job.limits)
        failed = execution.verdict is Verdict.INFRA
        if not (failed and self.queue.retry(job, slot, execution.detail)):
            self._send_result(job, execution, record.report.answers if record.report else [])

    def _send_result(
        self, job: QueuedJob, execution: Execution, answers: Sequence[str] = ()
    ) -> None:
        """Tell the trainer, unless it has cancelled the job."""
        if not job.cancelled:
            self._send("job", *JobResult(job.number, asdict(execution), list(answers)))

    def _send(self, *parts: object) -> None:
        self.trainer.send(json.dumps(parts).encode())

    def _replace(self, slot: Slot) -> None:
        """A zygote is gone: retry its jobs elsewhere, and start a new one. Raises OSError where
        zygotes do not come up.
        """
        self.false_starts += 1
        self.events.unwatch(slot.zygote.control, *(slot.run.sources if slot.run else ()))
        self.sessions.drop_slot(slot, ZYGOTE_DIED)
        for run in slot.close():
            if not self.queue.retry(run.job, slot, ZYGOTE_DIED):
                self._send_result(run.job, Execution(Verdict.INFRA, detail=ZYGOTE_DIED))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # what dead zygotes have left to us
                pass
        if self.false_starts > STARTS * len(self.slots):
            raise OSError(slot.failure or "zygotes die as soon as they are started")
        self.slots[self.slots.index(slot)] = self._new_slot(slot.number, slot.kind)

    def _check_time(self) -> None:
        """Stop runs and interpreters whose time is up; replace zygotes that hang."""
        now = time.monotonic()
        for slot in list(self.slots):
            self.runs.check_time(slot, now)
            if slot.zygote.waiting_since and now > slot.zygote.waiting_since + ZYGOTE_SECONDS:
                self._replace(slot)
        self.sessions.check_time(now)

    def _timeout(self) -> float:
        """Seconds until the next deadline."""
        if self.trainer.pending or any(run.worker.control.pending for run in self._running):
            return 0.001
        now = time.monotonic()
        waits = [run.due - now for run in self._running]
        return max(0.0, min([*waits, self.sessions.timeout(now)]))


def main() -> None:
    """Serve the trainer on the inherited descriptor; its first frame is the settings."""
    kernel.hide()
    kernel.die_with_parent(os.getppid())
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
    many_files()
    cgroups.remove_leftovers()
    stream = socket.socket(fileno=int(sys.argv[1]))
    length = int.from_bytes(stream.recv(4, socket.MSG_WAITALL), "big")
    if not length:
        return  # the trainer is gone before it began
    settings = SupervisorSettings(*json.loads(stream.recv(length, socket.MSG_WAITALL)))
    limits, trainer = Limits(**settings.limits), BufferedSocket(stream)
    try:
        supervisor = Supervisor(trainer, limits, settings.slots, settings.required)
        with contextlib.closing(supervisor):
            supervisor.loop()
    except (OSError, MemoryError) as error:
        stream.settimeout(GRACE_SECONDS)
        trainer.send(json.dumps(["fatal", str(error) or type(error).__name__]).encode())


if __name__ == "__main__":
    main()
