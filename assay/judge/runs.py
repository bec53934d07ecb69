"""The jobs that run now: reads their reports and output, and stops them at their limits."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.judge.job_queue import QueuedJob
from assay.judge.processes import Events
from assay.judge.slot import RunningJob, Slot
from assay.judge.verdict import PROGRAM_FAILURES, parse_report
from assay.sandbox.kernel import MIB
from assay.sandbox.limits import Limits
from assay.sandbox.zygote import ProcessEnd

GRACE_SECONDS = 1.0
"""What a worker gets to report after its candidate process was stopped."""


class Runs:
    """Runs jobs in slots; calls `on_end(slot, run)` when all is known of a run."""

    def __init__(
        self, events: Events, limits: Limits, on_end: Callable[[Slot, RunningJob], None]
    ) -> None:
        self._events = events
        self._limits = limits
        self._on_end = on_end

    def begin(self, slot: Slot, job: QueuedJob) -> None:
        """Start a job, and watch its worker and its output."""
        run = slot.begin(job)
        self._events.watch(run.worker.control.stream, lambda: self._on_report(slot, run))
        self._events.watch(run.candidate.printed, lambda: self._on_output(run))

    def finish(self, slot: Slot) -> None:
        """End the run in a slot. All is known when its killed process is reaped."""
        run = slot.run
        if run is not None:
            self._events.unwatch(*run.sources)
            run.read_printed(self._limits.output_kb * 1024)
            slot.end(run)

    def on_reaped(self, slot: Slot, end: ProcessEnd) -> None:
        """A process of a slot is reaped: a candidate process, or a worker, which is ignored."""
        if run := slot.unreaped.pop(end.pid, None):
            run.candidate.close()
            run.record.status, run.record.memory_mb = end.status, end.memory_mb
            run.record.cpu_seconds = end.cpu_seconds
            self._on_end(slot, run)

    def check_time(self, slot: Slot, now: float) -> None:
        """Stop the run in a slot if its CPU or wall time is up."""
        run = slot.run
        if run is None or now < run.due:
            return
        exceeded = "" if run.record.stopped else run.time_limit.exceeded(now)
        if not (run.record.stopped or exceeded):
            return
        if exceeded != "cpu" and run.is_frozen():
            run.record.stopped = "frozen"
        if run.record.stopped:
            self.finish(slot)
        else:
            self._stop(run, exceeded)

    def _on_report(self, slot: Slot, run: RunningJob) -> None:
        """The worker's report, or its death."""
        if slot.run is not run:
            return
        control, record = run.worker.control, run.record
        frames = control.receive()
        if frames:
            record.report = parse_report(frames[0], PROGRAM_FAILURES)
        if record.report is not None and record.report.awaits_exit and not run.candidate.is_dead():
            self._events.unwatch(control.stream)
            self._events.watch(run.candidate.pidfd, lambda: self.finish(slot))
        elif frames or not control.open:
            self.finish(slot)

    def _on_output(self, run: RunningJob) -> None:
        """What the program printed; too much of it ends the run."""
        if not run.read_printed(self._limits.output_kb * 1024):
            self._events.unwatch(run.candidate.printed)
        if run.printed_bytes > self._limits.printed_mb * MIB:
            self._stop(run, "printed")

    def _stop(self, run: RunningJob, why: str) -> None:
        """Kill the candidate process; the worker notices and reports what it has."""
        if not run.record.stopped:
            run.record.stopped = why
            run.time_limit.deadline = time.monotonic() + GRACE_SECONDS
            run.candidate.kill()
