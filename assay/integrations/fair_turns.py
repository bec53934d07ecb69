"""Turns at what few may use at once, given to clients fairly."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from assay.sandbox.fair_use import CLIENT, FairUse


class FairTurns:
    """A semaphore for `most` tasks at once. Next is a task of the client that holds the fewest
    turns, of these of the one that has used least; those of one client go in order.

    clock: as of FairUse.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free, self._clock = most, clock
        self._used = FairUse(clock)
        self._held = Counter[str]()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        """By client. No client's are empty."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn of this task's CLIENT, and hold it until the block ends."""
        client = CLIENT.get()
        await self._wait(client)
        started = self._clock()
        try:
            yield
        finally:
            self._used.add(client, self._clock() - started)
            self._give_back(client)

    async def _wait(self, client: str) -> None:
        if self._free:
            self._free -= 1
            self._held[client] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, []).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting.get(client, ()):
                self._leave(client, turn)
            else:  # it got its turn in the same moment
                self._give_back(client)
            raise

    def _give_back(self, client: str) -> None:
        """Give a turn of this client to the next, who then holds it."""
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        if not self._waiting:
            self._free += 1
            return
        following = min(self._waiting, key=lambda name: (self._held[name], self._used.of(name)))
        turn = self._waiting[following][0]
        self._leave(following, turn)
        self._held[following] += 1
        if not turn.cancelled():  # else who waited for it gives it back
            turn.set_result(None)

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        self._waiting[client].remove(turn)
        if not self._waiting[client]:
            del self._waiting[client]
