"""What engine and judge were busy with, in seconds and completions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Meter:
    """`with meter:` around each thing that is under way; many may be at once."""

    places: Callable[[], int] = lambda: 1
    """As many as can be worked on at once; more wait."""
    under_way: int = 0
    busy: float = 0.0
    """Seconds in which at least one was."""
    used: float = 0.0
    """Seconds, each times the share of places in use."""
    done: int = 0
    """Units of work, whatever the caller counts."""
    since: float = field(default_factory=time.perf_counter)

    def __enter__(self) -> None:
        self._note(1)

    def __exit__(self, *_: object) -> None:
        self._note(-1)

    def take(self) -> Meter:
        """What came together since the last time."""
        self._note(0)
        taken = replace(self)
        self.busy, self.used, self.done = 0.0, 0.0, 0
        return taken

    def _note(self, change: int) -> None:
        now, places = time.perf_counter(), self.places()
        self.busy += (now - self.since) * bool(self.under_way)
        self.used += (now - self.since) * min(self.under_way, places) / places
        self.under_way += change
        self.since = now
