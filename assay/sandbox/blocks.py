"""Runs blocks of code in one namespace, as an interpreter and a notebook do.

It uses nothing but the standard library, and its text is sent where nothing of assay is installed.
"""

from __future__ import annotations

import ast
import io
import linecache
import sys
import types
from traceback import TracebackException
from typing import Any

FRAMES = 8
"""Innermost frames of a traceback that are shown."""


def new_main() -> dict[str, Any]:
    """The namespace of a new `__main__`."""
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    return module.__dict__


def run_block(source: str, name: str, names: dict[str, Any]) -> BaseException | None:
    """Run a block of this name in a namespace; its last expression's value goes to
    `sys.displayhook`. What it raised. Nothing of it runs unless all of it compiles.
    """
    lines = io.StringIO(source, newline="").readlines()  # unlike splitlines, not at form feeds
    linecache.cache[name] = len(source), None, lines, name
    try:
        tree = ast.parse(source, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        codes = [compile(part, name, how, dont_inherit=True)
                 for part, how in ((tree, "exec"), (ast.Interactive(last), "single"))]  # fmt: skip
        for code in codes:
            exec(code, names)
    except BaseException as error:  # noqa: BLE001  the program's own code: whatever it raises is its answer
        return error
    return None


def described(error: BaseException, name: str) -> TracebackException:
    """What a block of this name raised, from the program's own code on: blocks whose names begin
    with the same word. May run code of the exception's.
    """
    trace, word = error.__traceback__, name.partition(" ")[0]
    while trace and not trace.tb_frame.f_code.co_filename.startswith(word):
        trace = trace.tb_next
    return TracebackException(type(error), error, trace, limit=-FRAMES)
