"""Keeps the slots busy and the time; the one who pronounces. Started by exec, one loop, no threads,
no foreign code.

It forwards jobs unread, never decodes a candidate's value, and ends every process it started when
the trainer hangs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from assay.judge.buffered_socket import BufferedSocket
from assay.judge.processes import kill, kill_children
from assay.judge.sessions import Sessions
from assay.judge.slot import QueuedJob, RunningJob, Slot
from assay.judge.verdict import FAILURES, decide
from assay.judge.wire_job import INTERPRETER, unpacked
from assay.sandbox import cgroups, kernel
from assay.sandbox.limits import MIB, Limits
from assay.sandbox.zygote import many_files
from assay.types import Execution, Verdict

GRACE_SECONDS = 1.0
"""What a worker gets to report once its candidate was stopped."""
ZYGOTE_SECONDS = 30.0
"""A zygote that has not answered for so long is replaced."""
UNREAD_BYTES = 16 * MIB
"""Executions that the trainer has not taken yet; with more than this, no job is begun."""
STARTS = 3
"""A zygote that dies so often before it ever answered will not come up."""
ATTEMPTS = 2
ZYGOTE_DIED = "the zygote died"
PR_SET_CHILD_SUBREAPER = 36
NUMBER = 4
BREAKS = {"gone", "wall", *FAILURES}
REPORTED = {"checks", "broken", "setup", "clean", "exits", "answers", "kept"}


class Supervisor:
    """The loop. `trainer` brings jobs and takes executions."""

    def __init__(
        self, trainer: BufferedSocket, limits: Limits, slots: int, required: list[str]
    ) -> None:
        self.trainer = trainer
        self.limits = limits
        self.required = required
        self.selector = selectors.DefaultSelector()
        self.waiting: OrderedDict[int, QueuedJob] = OrderedDict()
        self.false_starts = 0
        self.width = slots
        self.slots: list[Slot] = []
        self.selector.register(trainer.stream, selectors.EVENT_READ, self.from_trainer)
        self.sessions = Sessions(self.selector, self.ignore, self.send_block_result, many_files())

    def open_slots(self, zygote: str) -> None:
        """See to it that there are slots of one kind."""
        if not any(slot.zygote == zygote for slot in self.slots):
            for number in range(self.width):
                self.slots.append(
                    self.opened(number, zygote)
                )  # at once, so that close() finds it if the next fails

    def opened(self, number: int, zygote: str) -> Slot:
        """A new slot, listened to."""
        slot = Slot(number, zygote, self.limits, self.required)
        self.selector.register(slot.control, selectors.EVENT_READ, lambda: self.from_zygote(slot))
        return slot

    @property
    def running(self) -> list[RunningJob]:
        """What is being executed."""
        return [slot.run for slot in self.slots if slot.run]

    def loop(self) -> None:
        """Until the trainer hangs up."""
        self.open_slots("plain")
        while self.trainer.open:
            for key, _ in self.selector.select(self.patience()):
                if self.listens(key):
                    act: Callable[[], None] = key.data
                    act()
            self.keep_time()
            self.assign()
            self.sessions.assign([slot for slot in self.slots if slot.zygote == INTERPRETER])
            self.write()

    def write(self) -> None:
        """Write what could not be written at once."""
        self.trainer.flush()
        for run in self.running:
            run.worker.control.flush()

    def from_trainer(self) -> None:
        """New jobs, jobs that nobody waits for any more (an empty payload), and whether we live
        (number 0).
        """
        for frame in self.trainer.receive():
            number, payload = int.from_bytes(frame[:NUMBER], "big"), frame[NUMBER:]
            if payload:
                order = unpacked(payload)
                self.open_slots(order.zygote)
                request = QueuedJob(number, order, self.limits.scaled(order.time_factor))
                if order.zygote == INTERPRETER:
                    self.sessions.take(request)
                else:
                    self.waiting[number] = request
            elif number:
                self.cancel(number)
            else:
                self.trainer.send(b"{}")

    def cancel(self, number: int) -> None:
        """Drop a job, wherever it is, or an interpreter."""
        self.sessions.cancel(number)
        self.waiting.pop(number, None)
        for slot in self.slots:
            for run in slot.runs:
                run.request.cancelled |= run.request.number == number
            if slot.run and slot.run.request.cancelled:
                self.finish(slot)

    def assign(self) -> None:
        """Give jobs to free slots; one that failed goes to another slot than before, if there is
        one.
        """
        taken = {slot.number for slot in self.slots if slot.run}
        for slot in list(self.slots):
            if (
                slot.number in taken
                or not slot.free
                or not self.waiting
                or self.trainer.pending > UNREAD_BYTES
            ):
                continue
            choice = next(
                (request for request in self.waiting.values() if self.suits(request, slot)), None
            )
            if choice is not None:
                taken.add(slot.number)
                del self.waiting[choice.number]
                self.slots.remove(slot)
                self.slots.append(
                    slot
                )  # last in the next round, so that kinds which share a core take turns
                self.begin(slot, choice)

    def suits(self, request: QueuedJob, slot: Slot) -> bool:
        """Whether a job may be done there."""
        return slot.zygote == request.order.zygote and (
            request.avoid is not slot or self.width == 1
        )

    def begin(self, slot: Slot, request: QueuedJob) -> None:
        """Start one job and listen to its worker and its prints."""
        run = slot.begin(request)
        self.selector.register(
            run.worker.control.stream, selectors.EVENT_READ, lambda: self.from_worker(slot, run)
        )
        self.selector.register(run.leaf.printed, selectors.EVENT_READ, lambda: self.from_leaf(run))

    def from_worker(self, slot: Slot, run: RunningJob) -> None:
        """The report, or the worker's death."""
        if slot.run is not run:
            return
        frames = run.worker.control.receive()
        if frames:
            run.seen.report = report_of(
                frames[0], {*BREAKS, "refused"} if run.in_company else BREAKS
            )
        if run.seen.report is not None and run.seen.report["exits"] and not run.leaf.is_dead():
            self.ignore(run.worker.control.stream)
            self.selector.register(run.leaf.pidfd, selectors.EVENT_READ, lambda: self.finish(slot))
        elif frames or not run.worker.control.open:
            self.finish(slot)

    def from_leaf(self, run: RunningJob) -> None:
        """What the candidate printed; too much of it ends the candidate."""
        if not run.read_printed(self.limits.output_kb * 1024):
            self.ignore(run.leaf.printed)
        if run.printed_bytes > self.limits.printed_mb * MIB:
            self.stop(run, "printed")

    def stop(self, run: RunningJob, why: str) -> None:
        """Kill the leaf; the worker then sees it gone and reports what it has."""
        if not run.seen.stopped:
            run.seen.stopped = why
            run.deadline = time.monotonic() + GRACE_SECONDS
            kill(run.leaf.pidfd)

    def finish(self, slot: Slot) -> None:
        """The execution is over: take the last prints; pronounce at once, or when the killed leaf
        is reaped.
        """
        run = slot.run
        if run is not None:
            self.ignore(*run.sources)
            run.read_printed(self.limits.output_kb * 1024)
            if slot.end(run):
                self.decided(slot, run)

    def from_zygote(self, slot: Slot) -> None:
        """New processes, the reaped, and the zygote's own end."""
        for kind, parts in slot.messages():
            if kind == "leaf":
                self.false_starts = 0
            elif kind == "reaped":
                self.conclude(slot, parts)
            elif kind == "failed":
                slot.failure = str(parts[0])
            elif kind == "died":
                self.replace(slot)

    def conclude(self, slot: Slot, parts: list[Any]) -> None:
        """A leaf is reaped, if not a worker alone."""
        pid, status, cpu_seconds, memory_mb = parts[0]
        self.sessions.reaped(slot, pid, status, cpu_seconds, memory_mb)
        if run := slot.unreaped.pop(pid, None):
            run.leaf.close()
            run.seen.status, run.seen.cpu_seconds, run.seen.memory_mb = (
                status,
                cpu_seconds - run.leaf.spent,
                memory_mb,
            )
            self.decided(slot, run)

    def decided(self, slot: Slot, run: RunningJob) -> None:
        """All is known: pronounce, or try once more where the machine failed, or the leaf must be a
        new one.
        """
        if run.refused and not run.seen.stopped:
            self.alone(run.request)
            return
        execution = decide(run.seen, run.request.limits)
        if run.in_company and (
            execution.verdict is Verdict.MEMORY or not (run.seen.alive or run.seen.stopped)
        ):
            self.alone(run.request)
            return
        if execution.verdict is Verdict.INFRA and run.request.attempt + 1 < ATTEMPTS:
            self.retry(run.request, slot, execution.detail)
            return
        answers = run.seen.report["answers"] if run.seen.report else []
        self.send_result(
            run.request, {name: getattr(execution, name) for name in Execution.__slots__}, answers
        )

    def retry(self, request: QueuedJob, slot: Slot, failure: str) -> None:
        """Try a job again that the machine failed."""
        request.attempt += 1
        request.avoid = slot
        request.failure = failure
        self.first(request)

    def alone(self, request: QueuedJob) -> None:
        """Run a job again where nobody was before: the leaf has refused it, or its end may be
        another's doing.
        """
        request.alone = True
        self.first(request)

    def first(self, request: QueuedJob) -> None:
        """Put a job first in the line, unless nobody waits for it any more."""
        if not request.cancelled:
            self.waiting[request.number] = request
            self.waiting.move_to_end(request.number, last=False)

    def send_result(
        self, request: QueuedJob, execution: Mapping[str, object], answers: Sequence[str] = ()
    ) -> None:
        """Tell the trainer, if it still waits; it may have sought answers of a reference's."""
        if not request.cancelled:
            frame = {"number": request.number, "execution": execution, "answers": answers}
            self.trainer.send(json.dumps(frame).encode())

    def send_block_result(self, number: int, ended: str, output: str, detail: str) -> None:
        """Tell the trainer what became of code in an interpreter."""
        frame = {"number": number, "ended": ended, "output": output, "detail": detail}
        self.trainer.send(json.dumps(frame).encode())

    def replace(self, slot: Slot) -> None:
        """A zygote is gone: its jobs are tried again elsewhere, and a new one takes its place."""
        self.false_starts += 1
        self.ignore(slot.control, *(slot.run.sources if slot.run else ()))
        self.sessions.lose(slot, ZYGOTE_DIED)
        for run in slot.close():
            if run.request.attempt + 1 < ATTEMPTS:
                self.retry(run.request, slot, ZYGOTE_DIED)
            else:
                self.send_result(run.request, {"verdict": Verdict.INFRA, "detail": ZYGOTE_DIED})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # what dead zygotes have left to us
                pass
        if self.false_starts > STARTS * len(self.slots):
            raise OSError(slot.failure or "zygotes die as soon as they are started")
        self.slots[self.slots.index(slot)] = self.opened(slot.number, slot.zygote)

    def listens(self, key: selectors.SelectorKey) -> bool:
        """Whether an event still counts: what came before it in the same round may have closed its
        source.
        """
        try:
            return self.selector.get_key(key.fileobj) is key
        except (KeyError, ValueError):
            return False

    def ignore(self, *sources: int | socket.socket) -> None:
        """Listen no more; harmless where nobody listened."""
        for source in sources:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(source)

    def keep_time(self) -> None:
        """Stop what is over its CPU or wall time; replace zygotes that hang."""
        now = time.monotonic()
        for slot in self.slots:
            run = slot.run
            if run and now >= run.deadline:
                self.overdue(slot, run)
            elif run and now >= run.next_look and not run.seen.stopped:
                left = run.request.limits.cpu_seconds - run.leaf.cpu_seconds
                run.next_look = now + max(0.002, left)
                if left <= 0:
                    self.stop(run, "cpu")
            if slot.asked and now > slot.asked + ZYGOTE_SECONDS:
                self.replace(slot)
        self.sessions.keep_time(now)

    def overdue(self, slot: Slot, run: RunningJob) -> None:
        """The wall time is up, or the worker's time to report after the leaf was stopped."""
        if not run.seen.stopped and run.make_up():
            return
        if run.is_frozen():
            run.seen.stopped = "frozen"
        if run.seen.stopped:
            self.finish(slot)
        else:
            self.stop(run, "wall")

    def patience(self) -> float:
        """Seconds until the next thing that time alone brings about."""
        if self.trainer.pending or any(run.worker.control.pending for run in self.running):
            return 0.001
        now = time.monotonic()
        return max(
            0.0, min([*(run.due - now for run in self.running), self.sessions.patience(now)])
        )

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


def report_of(frame: bytes, breaks: Collection[str]) -> dict[str, Any] | None:
    """A worker's report; None, as of one that died, where a data set's code has written something
    else.

    `breaks`: the ways in which a candidate may have ended it.
    """
    try:
        found = json.loads(frame)
    except (ValueError, RecursionError):
        return None
    return found if well_formed(found, breaks) else None


def well_formed(found: Any, breaks: Collection[str]) -> bool:
    """Whether data is a report: what a worker of ours writes, with values of the right kinds."""
    if not (
        isinstance(found, dict)
        and found.keys() >= REPORTED
        and isinstance(found.get("output", ""), str)
    ):
        return False
    checks, broken = found["checks"], found["broken"]
    said = type(checks) is list and all(is_end(end, {"held", *FAILURES}) for end in checks)
    said = said and (broken is None or is_end(broken, breaks))
    return said and type(found["setup"]) is str and type(found["answers"]) is list


def is_end(found: Any, ways: Collection[str]) -> bool:
    """Whether data says how something ended, one of the ways, with a detail."""
    return (
        type(found) is list and len(found) == 2 and str(found[0]) in ways and type(found[1]) is str
    )


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
    settings = json.loads(stream.recv(length, socket.MSG_WAITALL))
    limits = Limits(**settings["limits"])
    trainer = BufferedSocket(stream)
    try:
        with contextlib.closing(
            Supervisor(trainer, limits, settings["slots"], settings["required"])
        ) as supervisor:
            supervisor.loop()
    except (OSError, MemoryError) as error:
        stream.settimeout(GRACE_SECONDS)
        trainer.send(json.dumps({"fatal": str(error) or type(error).__name__}).encode())


if __name__ == "__main__":
    main()
