"""What a pseudo-terminal got."""

from __future__ import annotations

import contextlib
import os


def everything_written(reader: int) -> str:
    """All that came to a terminal whose writer is closed: it arrives in pieces, and its end is an
    error. Closes the reader.
    """
    pieces = []
    with os.fdopen(reader, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while piece := terminal.read(65536):
            pieces.append(piece)
    return b"".join(pieces).decode()
