"""Measure how long and how fully an engine or a judge is busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Meter:
    """Put `with meter:` around each piece of work; many may run at once."""

    capacity: Callable[[], int] = lambda: 1
    """How many pieces of work can run at once; more wait."""
    running: int = 0
    busy: float = 0.0
    """Seconds in which at least one piece of work ran."""
    occupied: float = 0.0
    """Seconds, each multiplied by the share of the capacity in use."""
    count: int = 0
    """Units of work; the caller adds to it."""
    since: float = field(default_factory=time.perf_counter)
    """When a piece of work last began or ended."""

    def __enter__(self) -> None:
        self._update(1)

    def __exit__(self, *_: object) -> None:
        self._update(-1)

    def reset(self) -> Meter:
        """The totals since the last call; counting starts again from zero."""
        self._update(0)
        totals = replace(self)
        self.busy, self.occupied, self.count = 0.0, 0.0, 0
        return totals

    def _update(self, change: int) -> None:
        now, capacity = time.perf_counter(), self.capacity()
        self.busy += (now - self.since) * bool(self.running)
        self.occupied += (now - self.since) * min(self.running, capacity) / capacity
        self.running += change
        self.since = now


def standstill(meters: Mapping[str, Meter], after: float = 30.0) -> str:
    """`waiting for engine since 75 s` for the first that works, if none began or ended a piece of
    work for `after` seconds; else empty.
    """
    seconds = time.perf_counter() - max(meter.since for meter in meters.values())
    working = [name for name, meter in meters.items() if meter.running]
    return f"waiting for {working[0]} since {seconds:.0f} s" if working and seconds > after else ""
