"""Which slots a client may have that has used much more of them than others who ask too.

A slot that a long program holds makes all others wait. So where a client waits, the runs of those
that have used much more than most may keep all slots but a few, and the latest of the others is
stopped. Its program starts anew later: a run leaves nothing behind.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from assay.sandbox.fair_use import FairUse
from assay.sandbox.slot import QueuedProgram, RunningProgram

RESERVED = 4
"""One in so many slots is kept for the others, and at least one where there are two."""
RESERVE_SECONDS = 10.0
"""For how long after a need: while they ask again and again, nothing has to be stopped for them."""
MUCH, SLACK_SECONDS = 3.0, 0.1
"""Much is more than so many times what the lightest quarter of the clients has used, and this."""
PATIENCE_SECONDS = 0.05
"""A run that has lasted no longer may end by itself."""
MUCH_SECONDS = 0.5
"""How often what the lightest quarter has used is looked at."""


class SlotShares:
    """Decides who may start, and whose run is stopped.

    running: all runs that hold a slot now. clock: as of FairUse.
    """

    def __init__(
        self, slots: int, running: Callable[[], Collection[RunningProgram]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._share = slots - max(1, slots // RESERVED) if slots > 1 else slots
        """Slots that may hold runs of those that have used much."""
        self._running, self._clock = running, clock
        self._ended = FairUse(clock)
        self._started = defaultdict[str, dict[int, float]](dict)
        """When runs started that are not over, by client and number. No client's are empty."""
        self._reserved_until = 0.0
        self._last_much, self._much_until = SLACK_SECONDS, 0.0

    def used(self, client: str) -> float:
        """Seconds for which a client has held slots, of which old ones count less. A new one comes
        after those of whom it is known that they use little, as its first program may be a long
        one, and before all others.
        """
        now, started = self._clock(), self._started.get(client, {})
        ended = self._ended.of(client) if client in self._ended else SLACK_SECONDS
        return ended + sum(now - start for start in started.values())

    def begin(self, queued: QueuedProgram) -> None:
        """A program starts. Where it could do so because slots are reserved, they stay so."""
        now = self._clock()
        is_needed = now < self._reserved_until and not self._has_used_much(queued)
        if is_needed and self._held_by_heavy() >= self._share:
            self._reserved_until = now + RESERVE_SECONDS
        self._started[queued.client][queued.number] = now

    def end(self, queued: QueuedProgram) -> None:
        """A run is over."""
        start = self._started[queued.client].pop(queued.number, None)
        if start is not None:
            self._ended.add(queued.client, self._clock() - start)
        if not self._started[queued.client]:
            del self._started[queued.client]

    def may_start(self) -> Callable[[QueuedProgram], bool]:
        """Which programs may have a free slot now. One that was stopped is not stopped again, so
        it starts only where it need not be, or after a while.
        """
        now = self._clock()
        if now >= self._reserved_until:
            return lambda queued: (
                not queued.was_stopped
                or now >= queued.stopped_at + RESERVE_SECONDS
                or self._held_by_heavy() < self._share
            )
        if self._held_by_heavy() < self._share:
            return lambda queued: True
        return lambda queued: not (queued.was_stopped or self._has_used_much(queued))

    def to_stop(
        self, waiting: QueuedProgram, running: Iterable[RunningProgram]
    ) -> RunningProgram | None:
        """Which of these runs to stop for a program that waits, if any: the latest, of which least
        is lost.
        """
        if self._has_used_much(waiting) or self._held_by_heavy() <= self._share:
            return None
        now = self._clock()
        latest = max(
            (
                run for run in running
                if run.can_start_anew and now - run.started > PATIENCE_SECONDS
                and self._has_used_much(run.queued)
            ),
            key=lambda run: run.started, default=None,
        )  # fmt: skip
        if latest is not None:
            self._reserved_until = now + RESERVE_SECONDS
        return latest

    def _held_by_heavy(self) -> int:
        """Slots with runs of clients that have used much, and runs that are not stopped again."""
        runs = self._running()
        return sum(run.queued.was_stopped or self._has_used_much(run.queued) for run in runs)

    def _has_used_much(self, queued: QueuedProgram) -> bool:
        """Whether the client of a program has used much more than the lightest quarter."""
        return self.used(queued.client) > self._much

    @property
    def _much(self) -> float:
        """More is much."""
        now = self._clock()
        if now >= self._much_until:
            used = self._ended.of_recent()
            lightest = used[(len(used) - 1) // 4] if used else 0.0
            self._last_much = MUCH * lightest + SLACK_SECONDS
            self._much_until = now + MUCH_SECONDS
        return self._last_much
