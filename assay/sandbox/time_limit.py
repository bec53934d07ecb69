"""How long a program may run: CPU time, wall time, and time in which it got no processor."""

from __future__ import annotations

import time

from assay.sandbox.processes import CandidateProcess, Process, starved_seconds
from assay.sandbox.program import Ended


class TimeLimit:
    """The CPU and wall time of one run from now on. Time spent waiting for a core is given back.

    cpu_seconds, wall_seconds: of one step. starved: seconds for which the process has waited for a
    core before; infinite where none is given back. steps: how many times these times all steps
    together have.
    """

    def __init__(
        self, candidate: CandidateProcess, cpu_seconds: float, wall_seconds: float,
        starved: float = 0.0, steps: float = 1.0,
    ) -> None:  # fmt: skip
        now = time.monotonic()
        self.candidate, self.starved = candidate, starved
        self._companion: Process | None = None
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds
        self.before = 0.0
        """CPU seconds that were used when this step began."""
        self.total, self.last = steps * cpu_seconds, now + steps * wall_seconds
        """CPU seconds and the deadline of all steps together; times are on the monotonic clock."""
        self.deadline, self.next_look = now + wall_seconds, now + cpu_seconds
        self._given_back = now
        """Until when time was given back. Two processes may wait for a core at once, and what each
        waits is no more than the time that passes."""
        """When to read the CPU time next: no earlier than it can be used up by one thread."""

    def next_step(self) -> None:
        """Give the next step the time of one."""
        self.before = self.candidate.cpu_seconds
        self.deadline = min(time.monotonic() + self.wall_seconds, self.last)

    def give_back_to(self, companion: Process) -> None:
        """Give back the time in which the program waits for its companion, which waits for a core,
        from now on.
        """
        if self._companion is None:
            self.starved += starved_seconds(companion.number)
            self._companion = companion

    @property
    def due(self) -> float:
        """When to call `exceeded` next."""
        return min(self.deadline, self.next_look)

    def exceeded(self, now: float) -> Ended | None:
        """CPU, WALL, or None where time is left."""
        if now >= self.next_look:
            most = min(self.before + self.cpu_seconds, self.total)
            left = most - self.candidate.cpu_seconds
            self.next_look = now + max(0.002, left)
            if left <= 0:
                return Ended.CPU
        if now < self.deadline:
            return None
        waiting = filter(None, (self.candidate, self._companion))
        starved = sum(starved_seconds(process.number) for process in waiting)
        lost = min(starved - self.starved, now - self._given_back)
        if lost <= 0.01:
            return Ended.WALL
        self.deadline += lost
        self.starved, self._given_back = starved, now
        return None
