"""The inside of an interpreter: a walled leaf that runs one block of code after another in one
namespace.

What it says of a block is one byte; all else is what the block prints. Whatever the code does to
this file's loop, it deceives itself alone.
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
from typing import Any

from assay.judge.candidate import flush
from assay.judge.protocol import DONE, MIB, RAISED, ClosedError, FramedSocket
from assay.sandbox.zygote import ROLE_FD

CODE_MB = 64
FRAMES = 8
"""Innermost frames of a traceback that are shown."""


def main() -> None:
    """Run blocks until the supervisor hangs up."""
    gc.enable()
    wire = FramedSocket(socket.socket(fileno=ROLE_FD), CODE_MB * MIB)
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    sys.argv = [""]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            line_buffering=True
        )  # in order with what goes to stderr, and not lost with the process
    with contextlib.suppress(ClosedError, OSError):
        for number in itertools.count(1):
            end = ran(wire.receive().decode(), f"<block {number}>", module.__dict__)
            flush()
            wire.stream.sendall(end)


def ran(source: str, name: str, names: dict[str, Any]) -> bytes:
    """Run a block, and show its last expression's value, or what it raised: DONE or RAISED."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    try:
        tree = ast.parse(source, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        codes = [compile(part, name, how, dont_inherit=True)
                 for part, how in ((tree, "exec"), (ast.Interactive(last), "single"))]  # fmt: skip
        for code in codes:
            exec(code, names)
    except BaseException as error:  # noqa: BLE001  the program's own code ran: whatever it raises is its answer
        show(error, name.partition(" ")[0])
        return RAISED
    return DONE


def show(error: BaseException, names: str) -> None:
    """Print a traceback that begins in the program's own code, whose files' names begin with
    `names`.
    """
    trace = error.__traceback__
    while trace and not trace.tb_frame.f_code.co_filename.startswith(names):
        trace = trace.tb_next
    with contextlib.suppress(BaseException):  # the exception and the stream are the program's
        sys.stderr.write(
            "".join(traceback.format_exception(type(error), error, trace, limit=-FRAMES))
        )
