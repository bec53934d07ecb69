"""The programs that run: reads their reports and output, and stops them at their limits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from assay.sandbox.ending import ANSWER_RAN, ASKED
from assay.sandbox.events import Events
from assay.sandbox.kernel import MIB, ProcessEnd
from assay.sandbox.limits import Limits
from assay.sandbox.program import Ended
from assay.sandbox.repl import DONE, RAISED
from assay.sandbox.slot import WATCH_SECONDS, QueuedProgram, RunningProgram, Slot
from assay.sandbox.work_dir import is_overfull

GRACE_SECONDS = 1.0
"""What a companion gets to report after its program was stopped."""


class RunWatch:
    """Starts programs in slots and watches them; calls `on_end(slot, run)` when all is known of a
    run.
    """

    def __init__(
        self, events: Events, limits: Limits, on_end: Callable[[Slot, RunningProgram], None]
    ) -> None:
        self._events = events
        self._limits = limits
        self._on_end = on_end

    def begin(self, slot: Slot, queued: QueuedProgram) -> None:
        """Start a program, and watch its channel and its output."""
        run = slot.begin(queued)
        on_report = self._on_report if queued.program.session is None else self._on_end_of_code
        self._events.watch(run.channel.stream, lambda: on_report(slot, run))
        for source in run.outputs:
            self._events.watch(source, partial(self._on_output, run, source))
        if run.companion is None:
            self._events.watch(run.candidate.pidfd, lambda: self.finish(slot))
            if run.stdout < 0:
                self._stop(run, Ended.LOST, "there is no room for more descriptors")

    def finish(self, slot: Slot) -> None:
        """End the run in a slot. All is known when its killed process is reaped."""
        run = slot.run
        if run is not None:
            self._events.unwatch(*run.sources)
            if run.companion is None and run.channel.open and run.queued.program.session is None:
                self._read_report(run)
            self._read_outputs(run)
            slot.end(run)

    def on_reaped(
        self, slot: Slot, end: ProcessEnd, statuses: Sequence[int], names: Sequence[str],
        files: Sequence[int],
    ) -> None:  # fmt: skip
        """The process of a program is reaped, and its companion where `statuses` has how that
        ended. Its files that were to be fetched and are there come by name and descriptor.
        """
        run = slot.unreaped.pop(end.pid, None)
        for name, descriptor in zip(names, files, strict=True):
            with os.fdopen(descriptor, "rb") as file:
                if run:
                    run.fetch(name, file)
        if run:
            run.close()
            run.record.companion_status = statuses[0] if statuses else None
            slot.complete(run, end)
            self._on_end(slot, run)

    def check_time(self, slot: Slot, now: float) -> None:
        """Stop the run in a slot if its CPU or wall time is up, or if it uses too much."""
        run = slot.run
        if run is None:
            return
        if now >= run.next_watch:
            run.next_watch = now + WATCH_SECONDS
            if run.companion is not None:
                run.time_limit.give_back_to(run.companion)
            self._check_use(slot, run)
        if now < run.due:
            return
        exceeded = None if run.record.stopped else run.time_limit.exceeded(now)
        if not (run.record.stopped or exceeded):
            return
        if exceeded is not Ended.CPU and run.is_frozen():
            run.record.stopped = Ended.LOST
        if exceeded is None or run.record.stopped:
            self.finish(slot)
        else:
            self._stop(run, exceeded)

    def _check_use(self, slot: Slot, run: RunningProgram) -> None:
        """Stop a run that fills its folder or evades the limit of its memory."""
        if not run.has_started or run.record.stopped:
            return
        if slot.work_dir and is_overfull(slot.work_dir, [run.candidate.number]):
            self._stop(run, Ended.MEMORY, "filled its folder")
        elif used_mb := run.evades_memory:
            self._stop(run, Ended.MEMORY, f"had {used_mb:.0f} MiB in use")

    def _on_report(self, slot: Slot, run: RunningProgram) -> None:
        """A report, or the end of whoever would send it."""
        if slot.run is not run:
            return
        self._read_report(run)
        ended = run.record.report is not None or not run.channel.open
        if ended and run.companion is None:
            self._events.unwatch(run.channel.stream)  # the process's end is what ends the run
        elif ended:
            self.finish(slot)

    def _on_end_of_code(self, slot: Slot, run: RunningProgram) -> None:
        """What ends code whose process may be kept; anything else ends the process."""
        if slot.run is not run:
            return
        frames, record = run.channel.receive(), run.record
        if not frames and run.channel.open:
            return
        failure: tuple[Ended, str] | None = Ended.CLOSED, "wrote to the interpreter's own channel"
        if frames in ([DONE], [RAISED]):
            record.report, failure = frames[0], run.candidate.pause()
        if frames and failure:
            record.stopped, record.why = failure
        if record.report is None or record.stopped:
            self.finish(slot)
        else:
            self._events.unwatch(*run.sources)
            self._read_outputs(run)
            slot.keep(run)
            self._on_end(slot, run)

    def _read_outputs(self, run: RunningProgram) -> None:
        """All that is there of what the program wrote."""
        for source in run.outputs:
            before = -1
            while run.printed_bytes > before and not run.record.stopped:
                before = run.printed_bytes
                self._read(run, source)

    def _read_report(self, run: RunningProgram) -> None:
        """Take the report if it has come. A companion's empty frames say that a step begins, ASKED
        that it reads what the program says, and ANSWER_RAN comes before a report that may be the
        program's.
        """
        for frame in run.channel.receive():
            if frame == ANSWER_RAN and run.companion is not None:
                run.record.answer_ran = True
            elif frame == ASKED and run.companion is not None:
                run.record.was_asked |= run.record.report is None
            elif frame:
                run.record.report = run.record.report or frame
            elif run.record.report is None:
                run.time_limit.next_step()

    def _on_output(self, run: RunningProgram, source: int) -> None:
        """What the program wrote; too much of it ends the run."""
        if not self._read(run, source):
            self._events.unwatch(source)

    def _read(self, run: RunningProgram, source: int) -> bool:
        most_printed, most_kept = self._limits.printed_mb * MIB, self._limits.output_kb * 1024
        more = run.read_output(source, most_printed if source == run.stdout else most_kept)
        if run.printed_bytes > most_printed:
            self._stop(run, Ended.PRINTED)
        return more

    def _stop(self, run: RunningProgram, ended: Ended, why: str = "") -> None:
        """Kill the program; a companion notices and reports what it has."""
        if not run.record.stopped:
            run.record.stopped, run.record.why = ended, why
            run.time_limit.deadline = time.monotonic() + GRACE_SECONDS
            run.candidate.kill()
