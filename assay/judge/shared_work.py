"""A cache in which all who ask for what is being made wait for one maker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from assay.bounded import BoundedDict, size_of
from assay.errors import DataError

K = TypeVar("K")


V = TypeVar("V")


def size_of_result(weigh: Callable[[Any], int], value: object) -> int:
    """About how many bytes the result of a task takes, once there is one; or any other value."""
    if not isinstance(value, asyncio.Task):
        return size_of(value)
    done = value.done() and not value.cancelled() and not value.exception()
    return weigh(value.result()) if done else 0


class SharedWork(BoundedDict[K, asyncio.Task[V]]):
    """What is made once for all who ask for a key, and cancelled where nobody waits any more."""

    keeps: tuple[type[Exception], ...] = (DataError,)
    """The errors that are raised again for whoever asks later; after any other it is made again."""

    def __init__(self, most: int, most_mb: float, weigh: Callable[[Any], int] = size_of) -> None:
        super().__init__(most, most_mb, partial(size_of_result, weigh))
        self._waiters = Counter[asyncio.Task[V]]()

    async def get_or_make(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """What `make` returns. Raises what it raises."""
        task = self.touch(key)
        if task and task.done() and not (task.cancelled() or task.exception()):
            return task.result()
        if task is None or task.cancelled():
            self[key] = task = asyncio.ensure_future(make())
        self._waiters[task] += 1
        is_new = not task.done()
        try:
            return await asyncio.shield(task)
        except Exception as error:
            if not isinstance(error, self.keeps):
                self._drop(key, task)
            raise
        finally:
            if is_new and task.done() and self.get(key) is task:
                self[key] = task  # now that its result can be weighed
            self._waiters[task] -= 1
            if not self._waiters[task]:
                del self._waiters[task]
                if not task.done():
                    task.cancel()
                    self._drop(key, task)

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        """Forget a task, unless the key has another one by now."""
        if self.get(key) is task:
            del self[key]

    def close(self) -> None:
        """Cancel what is being made."""
        for task in self.values():
            task.cancel()
