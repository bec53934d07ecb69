"""How much clients have used lately of what all of them share."""

import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar

CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")
"""For whom this task works: the address of a service's client, or nobody in particular."""
HALF_LIFE = 30.0
"""Seconds after which a use counts half."""
CLIENTS = 4096
"""Clients that are remembered: the latest."""
RECENT_SECONDS = 60.0
"""Who has used nothing for so long is not compared with the others."""


class FairUse:
    """Seconds of use by client. Old uses count less, and are forgotten in the end.

    clock: seconds that never go back, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: OrderedDict[str, tuple[float, float, float]] = OrderedDict()
        """Seconds at the time of the latest use, that time, and the seconds of that use alone, the
        latest last."""

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, client: object) -> bool:
        return client in self._used

    def add(self, client: str, seconds: float) -> None:
        """Count a use that ends now."""
        self._used[client] = self.of(client) + seconds, self._clock(), seconds
        self._used.move_to_end(client)
        while len(self._used) > CLIENTS:
            self._used.popitem(last=False)

    def of(self, client: str) -> float:
        """What a client has used, in seconds of which old ones count less."""
        seconds, at, _ = self._used.get(client, (0.0, 0.0, 0.0))
        return seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE) if seconds else 0.0

    def latest(self, client: str) -> float:
        """Seconds of a client's latest use alone; 0 where none is known."""
        return self._used.get(client, (0.0, 0.0, 0.0))[2]

    def usual(self) -> float:
        """The median of the latest uses of those who have used anything lately; 0 without any."""
        since = self._clock() - RECENT_SECONDS
        latest = sorted(seconds for _, at, seconds in self._used.values() if at >= since)
        return latest[len(latest) // 2] if latest else 0.0

    def has_others(self, client: str) -> bool:
        """Whether another client has used anything lately."""
        since = self._clock() - RECENT_SECONDS
        for name in reversed(self._used):
            if self._used[name][1] < since:
                break
            if name != client:
                return True
        return False

    def of_recent(self) -> list[float]:
        """The same of each client that has used anything lately, in ascending order."""
        since = self._clock() - RECENT_SECONDS
        return sorted(self.of(client) for client, (_, at, _) in self._used.items() if at >= since)
