"""A bounded stream of rollout groups: generation runs ahead of the learner by at most
`max_staleness` versions of the weights.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from assay.types import Rollout


@dataclass(frozen=True, slots=True)
class FinishedGroup:
    """All rollouts of one task."""

    number: int
    """The group's place in the stage's order of tasks."""
    start_version: int
    """Version of the weights when the group started; none of its tokens is older."""
    rollouts: list[Rollout]


@dataclass(slots=True)
class GroupStream:
    """Groups in the order in which they finish, started in the order of their numbers.

    | who | takes | gives | waits for |
    |---|---|---|---|
    | `fill` | the next number | a running group | nothing; it keeps `prefetch` extra groups |
    | a group | its task | scored rollouts | the engine, judge and reward |
    | `take` (the loop) | finished groups | the groups of a step | enough groups, all late ones |
    | `publish` (the loop) | the new version | nothing | nothing |

    With `prefetch` 0 a step takes exactly the groups that it started: synchronous training.
    Otherwise the other groups keep running while the policy learns, and continue on the new
    weights. No group is dropped: one starts only if a step can take it at most `max_staleness`
    versions later, and a step waits for the groups that the steps after it could not take in time.
    So a task that takes longer than others is learned from as often as they are.
    `close` is the only way to end a stream: it cancels all running groups and waits for them.
    """

    start_group: Callable[[int], Coroutine[None, None, list[Rollout]]]
    per_step: int
    max_staleness: int
    prefetch: int
    version: int = 0
    next: int = 0
    restart: list[int] = field(default_factory=list)
    _running: dict[asyncio.Task[list[Rollout]], tuple[int, int]] = field(default_factory=dict)
    _finished: list[FinishedGroup] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefetch = min(self.prefetch, self.max_staleness * self.per_step)

    @property
    def position(self) -> dict[str, int | list[int]]:
        """The next number, and the numbers of groups that started and that no step has taken."""
        running = [number for number, _ in self._running.values()]
        waiting = [group.number for group in self._finished]
        return {"next": self.next, "open": sorted([*running, *waiting, *self.restart])}

    def resume(self, next: int, open: list[int]) -> None:
        """Continue from a `position`: open groups start again, before all others."""
        self.next, self.restart = next, list(open)

    async def publish(self, version: int) -> None:
        """Start new groups with `version` from now on. Raises what a group has raised."""
        self._collect()
        self.version = version

    async def take(self, count: int) -> list[FinishedGroup]:
        """The `count` oldest of the groups that finish first, sorted by number; then start
        `prefetch` more.

        Raises what a group has raised.
        """
        self.fill(count + self.prefetch)
        while len(self._finished) < count or self._waits_for_late_groups():
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            self._collect()
        self._finished.sort(key=lambda group: (group.start_version, group.number))
        step, self._finished = self._finished[:count], self._finished[count:]
        self.fill(self.prefetch)
        return sorted(step, key=lambda group: group.number)

    def _waits_for_late_groups(self) -> bool:
        """Whether more groups of some age still run than later steps can take in time."""
        starts = sorted(start for _, start in self._running.values())
        return any(
            number > self.per_step * (start + self.max_staleness - self.version)
            for number, start in enumerate(starts, 1)
        )

    def fill(self, target: int) -> None:
        """Start groups until `target` are running or finished."""
        while len(self._running) + len(self._finished) < target:
            if not self.restart:
                self.restart, self.next = [self.next], self.next + 1
            number = self.restart.pop(0)
            self._running[asyncio.create_task(self.start_group(number))] = (number, self.version)

    async def close(self) -> None:
        """Cancel all running groups and wait for them."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    def _collect(self) -> None:
        for task in [task for task in self._running if task.done()]:
            rollouts = task.result()  # where it raises, its group stays open
            self._finished.append(FinishedGroup(*self._running.pop(task), rollouts))
