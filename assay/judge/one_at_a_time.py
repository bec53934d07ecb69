"""One thread of a test at a time asks the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from threading import RLock, get_ident


class OneAtATime:
    """One thread of a test at a time asks the program."""

    def __init__(self) -> None:
        self._lock, self._holder, self._depth = RLock(), 0, 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        self._lock.release()

    def is_mine(self) -> bool:
        """Whether this thread asks something just now."""
        return self._depth > 0 and self._holder == get_ident()

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[None]:
        """While a function of the test runs that the program has called, it may ask too."""
        depth, self._depth = self._depth, 0
        try:
            yield
        finally:
            self._depth = depth
