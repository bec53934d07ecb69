"""The process of an interpreter (a REPL): runs one block of code after another in one namespace.

It answers a block with a frame of one byte; all else is what the block prints. Code that tampers
with this loop deceives only itself.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import itertools
import linecache
import socket
import sys
import traceback
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import FramedSocket

DONE, RAISED = b"+", b"!"
"""What is said of a block: it ran to its end; it raised. The state is kept."""
CODE_MB = 64
FRAMES = 8
"""Innermost frames of a traceback that are shown."""


def prepare(_: str, stream: socket.socket) -> Callable[[], None]:
    """The work of an interpreter, which reads blocks from `stream`."""
    return partial(serve, FramedSocket(stream, CODE_MB * MIB))


def serve(sock: FramedSocket) -> None:
    """Run blocks until the supervisor hangs up."""
    gc.enable()
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    sys.argv = [""]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # keeps the order with stderr, and loses nothing when the process dies
        sys.stdout.reconfigure(line_buffering=True)
    with contextlib.suppress(OSError):
        for number in itertools.count(1):
            mark = run_block(sock.receive().decode(), f"<block {number}>", module.__dict__)
            flush()
            sock.send(mark)


def run_block(source: str, name: str, names: dict[str, Any]) -> bytes:
    """Run a block; print its last expression's value, or the traceback. Returns DONE or RAISED."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    try:
        tree = ast.parse(source, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        codes = [compile(part, name, how, dont_inherit=True)
                 for part, how in ((tree, "exec"), (ast.Interactive(last), "single"))]  # fmt: skip
        for code in codes:
            exec(code, names)
    except BaseException as error:  # noqa: BLE001  the program's own code: whatever it raises is its answer
        print_traceback(error, name.partition(" ")[0])
        return RAISED
    return DONE


def print_traceback(error: BaseException, names: str) -> None:
    """Print a traceback from the program's own code on, whose file names start with `names`."""
    trace = error.__traceback__
    while trace and not trace.tb_frame.f_code.co_filename.startswith(names):
        trace = trace.tb_next
    with contextlib.suppress(BaseException):  # the exception and the stream are the program's
        sys.stderr.write(
            "".join(traceback.format_exception(type(error), error, trace, limit=-FRAMES))
        )


def flush() -> None:
    """Flush what the program printed; it may have closed or replaced its streams."""
    with contextlib.suppress(Exception):  # a stream may be any object by now
        sys.stdout.flush()
        sys.stderr.flush()
