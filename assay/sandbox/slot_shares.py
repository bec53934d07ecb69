"""Which slots a client may have that has used much more of them than others who ask too, and whose
programs let others go first.

A slot that a long program holds makes all others wait. So where a client waits, the runs of those
that have used much more than most, and of those of whom nothing is known yet, may keep some slots,
and the latest of the others is stopped. Its program starts anew later: a run leaves nothing behind.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from enum import IntEnum

from assay.sandbox.fair_use import FairUse
from assay.sandbox.slot import QueuedProgram, RunningProgram

RESERVE_SECONDS = 10.0
"""For how long after a need slots are kept free: while clients ask again and again, nothing has to
be stopped for them."""
MUCH, SLACK_SECONDS = 3.0, 0.5
"""Much is more than so many times what the lightest quarter of the clients has used, and this."""
PATIENCE_SECONDS = 0.03
"""A run that has lasted no longer may end by itself."""
OUTLASTS = 2.0
"""Beside a client that waits, a run is long that has lasted so many times as long as the latest
program of that client or of half of all clients, and PATIENCE_SECONDS more. A client that sends the
shortest of programs so makes nobody's ordinary ones long."""
LONG_SECONDS = 0.1
"""A run that has lasted longer lets others go first, whoever asked for it."""
MUCH_SECONDS = 0.5
"""How often what all clients have used is looked at."""


class Weight(IntEnum):
    """What a client's programs may cost the others."""

    LIGHT = 0
    """It has used about as little as others have."""
    NEW = 1
    """No program of it has ended yet, so the first may be a long one."""
    HEAVY = 2
    """It has used much more than most, or this program was stopped before."""


class SlotShares:
    """Decides who may start, and whose run is stopped.

    running: all runs that hold a slot now. clock: as of FairUse.
    """

    def __init__(
        self, slots: int, running: Callable[[], Collection[RunningProgram]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        half = slots - slots // 2
        self._most = {Weight.NEW: half, Weight.HEAVY: max(1, half * 3 // 4)}
        """Slots that runs of at least this weight may hold where a lighter client waits."""
        self._reserved_until = dict.fromkeys(self._most, 0.0)
        self._running, self._clock = running, clock
        self._ended = FairUse(clock)
        self._started = defaultdict[str, dict[int, float]](dict)
        """When runs started that are not over, by client and number. No client's are empty."""
        self._last_much, self._last_usual, self._looked_until = SLACK_SECONDS, 0.0, 0.0

    def used(self, client: str) -> float:
        """Seconds for which a client has held slots, of which old ones count less. A new one comes
        after those of whom it is known that they use little, as its first program may be a long
        one, and before all others.
        """
        return self._holding(client) + SLACK_SECONDS * (client not in self._ended)

    def weight(self, queued: QueuedProgram, beside: str = "") -> Weight:
        """How heavy a program is. For a client alone, all are light; `beside` is one that waits."""
        client = queued.client
        if not self._has_others(client, beside):
            return Weight.LIGHT
        if queued.was_stopped or self._holding(client) > self._much:
            return Weight.HEAVY
        return Weight.LIGHT if client in self._ended else Weight.NEW

    def goes_last(self, queued: QueuedProgram) -> bool:
        """Whether the programs of others go before this one where cores are few: it is not known to
        be short.
        """
        if not self._has_others(queued.client):
            return False
        start = self._started.get(queued.client, {}).get(queued.number, self._clock())
        return self._clock() - start > LONG_SECONDS or self.weight(queued) > Weight.LIGHT

    def begin(self, queued: QueuedProgram) -> None:
        """A program starts. Where it could do so because slots are reserved, they stay so."""
        now = self._clock()
        for heavier, until in self._reserved_until.items():
            if now < until and self.weight(queued) < heavier and self._is_full(heavier):
                self._reserved_until[heavier] = now + RESERVE_SECONDS
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
        reserved = (weight for weight, until in self._reserved_until.items() if now < until)
        closed = [weight for weight in reserved if self._is_full(weight)]

        def may(queued: QueuedProgram) -> bool:
            if closed and (weight := self.weight(queued)) >= min(closed):
                is_patient = weight is Weight.NEW and now >= queued.came + RESERVE_SECONDS
                if not is_patient:
                    return False
            has_waited = now >= queued.stopped_at + RESERVE_SECONDS
            return not queued.was_stopped or has_waited or not self._is_full(Weight.HEAVY)

        return may

    def to_stop(
        self, waiting: QueuedProgram, running: Iterable[RunningProgram]
    ) -> RunningProgram | None:
        """Which of these runs to stop for a program that waits, if any: a heavy one first, and of
        these the latest, of which least is lost.
        """
        if not self._has_others(waiting.client):
            return None  # as nearly always: all runs are of this client
        weight = self.weight(waiting)
        if weight is Weight.HEAVY:
            return None
        heavier, now = Weight(weight + 1), self._clock()
        usual = max(self._usual, self._ended.latest(waiting.client))
        most_seconds = PATIENCE_SECONDS + OUTLASTS * usual

        def weight_of(run: RunningProgram) -> Weight:
            """A long run of another client's is as a new client's."""
            weight = self.weight(run.queued, waiting.client)
            is_long = now - run.started > most_seconds and run.queued.client != waiting.client
            return max(weight, Weight.NEW) if is_long else weight

        count = sum(weight_of(run) >= heavier for run in self._running())
        if count <= self._most[heavier]:
            return None
        latest = max(
            (
                run for run in running
                if run.can_start_anew and now - run.started > PATIENCE_SECONDS
                and weight_of(run) >= heavier
            ),
            key=lambda run: (weight_of(run), run.started), default=None,
        )  # fmt: skip
        if latest is not None:
            self._reserved_until[heavier] = now + RESERVE_SECONDS
        return latest

    def _holding(self, client: str) -> float:
        """Seconds for which a client has held slots, as far as is known."""
        now, started = self._clock(), self._started.get(client, {})
        return self._ended.of(client) + sum(now - start for start in started.values())

    def _has_others(self, client: str, beside: str = "") -> bool:
        """Whether there are other clients: that wait, that run something, or did so lately."""
        running = self._started.keys() - {client}
        return bool(running or (beside and beside != client) or self._ended.has_others(client))

    def _is_full(self, least: Weight) -> bool:
        """Whether runs of at least this weight hold all slots that they may hold."""
        return sum(self.weight(run.queued) >= least for run in self._running()) >= self._most[least]

    @property
    def _much(self) -> float:
        """More is much."""
        self._look_at_all()
        return self._last_much

    @property
    def _usual(self) -> float:
        """Seconds for which a program holds a slot, in the median of all clients."""
        self._look_at_all()
        return self._last_usual

    def _look_at_all(self) -> None:
        """Look at what all clients have used lately, unless that was just done."""
        now = self._clock()
        if now >= self._looked_until:
            used = self._ended.of_recent()
            lightest = used[(len(used) - 1) // 4] if used else 0.0
            self._last_much = MUCH * lightest + SLACK_SECONDS
            self._last_usual = self._ended.usual()
            self._looked_until = now + MUCH_SECONDS
