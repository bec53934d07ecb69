"""Waits for many descriptors at once, and calls a function for each that can be read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector

from assay.sandbox.processes import Source


class Events(DefaultSelector):
    """The descriptors to watch and the function to call for each."""

    def watch(self, source: Source, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `source` can be read."""
        self.register(source, EVENT_READ, callback)

    def unwatch(self, *sources: Source) -> None:
        """Watch no longer; harmless where nobody watched."""
        for source in sources:
            with contextlib.suppress(KeyError, ValueError):
                self.unregister(source)

    def dispatch(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for events, and call their functions."""
        for key, _ in self.select(timeout):
            # a callback earlier in this round may have closed the source, and another one may have
            # got its number
            if self.get_map().get(key.fd) is key:
                key.data()
