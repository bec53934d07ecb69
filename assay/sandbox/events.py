"""Waits for many descriptors at once, and calls a function for each that can be read."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable

from assay.sandbox.processes import Source


class Events:
    """The descriptors to watch and the function to call for each.

    A program brings six events and four changes of what is watched, so each has to be cheap: the
    module `selectors` takes three times as long for them as epoll itself.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Source, Callable[[], None]]] = {}
        """By descriptor. Each watch has a tuple of its own, which keeps the source open."""

    def watch(self, source: Source, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `source` can be read."""
        number = source if isinstance(source, int) else source.fileno()
        self._epoll.register(number, select.EPOLLIN)
        self._watched[number] = source, callback

    def unwatch(self, *sources: Source) -> None:
        """Watch no longer; harmless where nobody watched."""
        for source in sources:
            number = source if isinstance(source, int) else source.fileno()
            if self._watched.pop(number, None):
                with contextlib.suppress(OSError):  # whoever closes a descriptor ends its watch
                    self._epoll.unregister(number)

    def dispatch(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for events, and call their functions."""
        watched = self._watched
        ready = self._epoll.poll(timeout, len(watched) + 1)
        for number, watch in [(number, watched.get(number)) for number, _ in ready]:
            # a callback earlier in this round may have closed the source, and another one may have
            # got its number
            if watch is not None and watched.get(number) is watch:
                watch[1]()

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()
        self._watched.clear()
