"""The process of an interpreter (a REPL): runs one block of code after another in one namespace.

It answers a block with a frame of one byte; all else is what the block prints. Code that tampers
with this loop deceives only itself.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from assay.sandbox.blocks import described, new_main, run_block
from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import FramedSocket

DONE, RAISED = b"+", b"!"
"""What is said of a block: it ran to its end; it raised. The state is kept."""
CODE_MB = 64


def prepare(_: str, stream: socket.socket) -> Callable[[], None]:
    """The work of an interpreter, which reads blocks from `stream`."""
    return partial(serve, FramedSocket(stream, CODE_MB * MIB))


def serve(sock: FramedSocket) -> None:
    """Run blocks until the supervisor hangs up."""
    gc.enable()
    names = new_main()
    sys.argv = [""]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # keeps the order with stderr, and loses nothing when the process dies
        sys.stdout.reconfigure(line_buffering=True)
    with contextlib.suppress(OSError):
        for number in itertools.count(1):
            mark = run(sock.receive().decode(), f"<block {number}>", names)
            flush()
            sock.send(mark)


def run(source: str, name: str, names: dict[str, Any]) -> bytes:
    """Run a block, and print what it raised. Returns DONE or RAISED."""
    error = run_block(source, name, names)
    if error is None:
        return DONE
    with contextlib.suppress(BaseException):  # the exception and the stream are the program's
        sys.stderr.write("".join(described(error, name).format()))
    return RAISED


def flush() -> None:
    """Flush what the program printed; it may have closed or replaced its streams."""
    try:  # each reply runs this: `suppress` takes as long as the flushing
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001  a stream may be any object by now
        pass
