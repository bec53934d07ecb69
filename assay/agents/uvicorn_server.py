"""uvicorn inside a program that handles signals itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

KEEP_ALIVE_SECONDS = 30
"""How long a connection may stay open without a request: longer than clients keep theirs, or one of
them would write to a connection that we just closed."""


class EmbeddedServer(uvicorn.Server):
    """Leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
