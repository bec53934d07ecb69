"""A bounded stream of groups: written ahead of the learner by so many versions of the weights, and
never more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from assay.types import Rollout


@dataclass(frozen=True, slots=True)
class Group:
    """Rollouts of one task."""

    number: int
    """Its place in the stage's order of tasks."""
    begun: int
    """The version of the weights when it was begun; none of its tokens is older."""
    rollouts: list[Rollout]


class Stream:
    """Groups in the order in which they end, begun in the order of their numbers.

    | who | takes | gives | waits for |
    |---|---|---|---|
    | `fill` | the next number | a group under way | nothing: it stops at `ahead` groups more than
    the step takes |
    | a group | its task | judged rollouts | the engine, the judge |
    | `take` (the loop) | groups that have ended | a step's groups | as many as the step takes |
    | `publish` (the loop) | the next weights' version | nothing | groups too old for it, until they
    are gone |

    With `ahead` 0 a step takes exactly what it began: synchronous. Otherwise what is left goes on
    while the policy learns, and on with the new weights. A group begun more than `lag` versions ago
    is dropped and counted, so bounded staleness costs the longest. `close` is the one way it ends:
    all that is under way is cancelled and waited for.
    """

    def __init__(
        self, begin: Callable[[int], Coroutine[None, None, list[Rollout]]], *, lag: int, ahead: int
    ) -> None:
        self.begin = begin
        self.lag = lag
        self.ahead = ahead
        self.version = 0
        self.next = 0
        self.again: list[int] = []
        self.dropped = 0
        self._under_way: dict[asyncio.Task[list[Rollout]], tuple[int, int]] = {}
        self._ended: list[Group] = []

    @property
    def position(self) -> dict[str, int | list[int]]:
        """Where it stands: the next number, and those begun that nobody has taken."""
        begun = [number for number, _ in self._under_way.values()] + [
            group.number for group in self._ended
        ]
        return {"next": self.next, "open": sorted([*begun, *self.again])}

    def resume(self, next: int, open: list[int]) -> None:
        """Go on from a `position`: what was open is begun again, first of all."""
        self.next, self.again = next, list(open)

    async def publish(self, version: int) -> None:
        """What is begun from now on has weights of `version`; what is too old beside them is given
        up.

        Raises what a group has raised.
        """
        self._gather()
        self.version = version
        oldest = version - self.lag
        old = [task for task, (_, begun) in self._under_way.items() if begun < oldest]
        await self._cancel(old)
        kept = [group for group in self._ended if group.begun >= oldest]
        self.dropped += len(old) + len(self._ended) - len(kept)
        self._ended = kept

    async def take(self, count: int) -> list[Group]:
        """`count` groups, the first to end, in the order of their numbers; then as many as allowed
        are begun ahead.

        Raises what a group has raised.
        """
        self.fill(count + self.ahead)
        while len(self._ended) < count:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            self._gather()
        self._ended.sort(key=lambda group: group.number)
        taken, self._ended = self._ended[:count], self._ended[count:]
        self.fill(self.ahead)
        return taken

    def fill(self, most: int) -> None:
        """Begin groups until `most` are under way or have ended."""
        while len(self._under_way) + len(self._ended) < most:
            if not self.again:
                self.again, self.next = [self.next], self.next + 1
            number = self.again.pop(0)
            self._under_way[asyncio.create_task(self.begin(number))] = (number, self.version)

    async def close(self) -> None:
        """Give up all that is under way."""
        await self._cancel(list(self._under_way))

    def _gather(self) -> None:
        for task in [task for task in self._under_way if task.done()]:
            number, begun = self._under_way.pop(task)
            self._ended.append(Group(number, begun, task.result()))

    async def _cancel(self, tasks: list[asyncio.Task[list[Rollout]]]) -> None:
        for task in tasks:
            self._under_way.pop(task)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
