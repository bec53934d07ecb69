"""What engine and judge were busy with, in seconds and completions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Meter:
    """`with meter:` around each thing that is under way; many may be at once."""

    under_way: int = 0
    busy: float = 0.0
    """Seconds in which at least one was."""
    sum: float = 0.0
    """Seconds of all of them added up."""
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
        taken = Meter(self.under_way, self.busy, self.sum, self.done)
        self.busy, self.sum, self.done = 0.0, 0.0, 0
        return taken

    def _note(self, change: int) -> None:
        now = time.perf_counter()
        self.busy += (now - self.since) * bool(self.under_way)
        self.sum += (now - self.since) * self.under_way
        self.under_way += change
        self.since = now
