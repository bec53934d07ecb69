"""Runs a notebook's cells in one namespace: a program that the service sends to the sandbox.

Standard input holds [cells, seconds for each]; each cell adds a line of JSON to the file RESULTS.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import os
import signal
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

RESULTS = ".cells"
SHOWN = 65_536
"""Bytes of a stream, and characters of a value, that are kept of each cell."""


def main() -> None:
    """Run all cells, also after one that raises."""
    cells, seconds = json.load(sys.stdin)
    files = [tempfile.TemporaryFile(buffering=0) for _ in range(2)]  # noqa: SIM115  until the end
    for standard, file in enumerate(files, start=1):
        os.dup2(file.fileno(), standard)
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    signal.signal(signal.SIGALRM, too_long)
    with Path(RESULTS).open("w") as results:
        for number, source in enumerate(cells, start=1):
            result = run_cell(source, f"<cell {number}>", module.__dict__, seconds)
            result |= {"stdout": written(1, sys.stdout), "stderr": written(2, sys.stderr)}
            print(json.dumps(result), file=results, flush=True)


def too_long(*_: object) -> None:
    """The cell's time is up."""
    raise TimeoutError("the cell has run for its cell_timeout")


def run_cell(source: str, name: str, names: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a cell displays, which is the value of its last expression, and what it raises."""
    display: list[dict[str, str]] = []
    error: list[dict[str, Any]] = []

    def show(value: object) -> None:
        if value is not None:
            display.append({"text/plain": repr(value)[:SHOWN]})
            builtins._ = value  # type: ignore[attr-defined]

    sys.displayhook = show
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    try:
        tree = ast.parse(source, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        signal.setitimer(signal.ITIMER_REAL, seconds)
        exec(compile(tree, name, "exec", dont_inherit=True), names)
        exec(compile(ast.Interactive(last), name, "single", dont_inherit=True), names)
    except BaseException as raised:  # noqa: BLE001  the cell's own code: whatever it raises is its answer
        trace = raised.__traceback__
        while trace and not trace.tb_frame.f_code.co_filename.startswith("<cell"):
            trace = trace.tb_next
        summary = traceback.TracebackException(type(raised), raised, trace)
        error.append({"ename": type(raised).__name__, "evalue": str(summary),
                      "traceback": list(summary.format())})  # fmt: skip
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"display": display, "error": error}


def written(descriptor: int, stream: Any) -> str:
    """What a cell wrote to a stream, which is empty then."""
    stream.flush()
    size = os.lseek(descriptor, 0, os.SEEK_CUR)
    text = os.pread(descriptor, SHOWN, 0).decode("utf-8", "replace")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return text + (f"\n[... {size - SHOWN} bytes left out ...]\n" if size > SHOWN else "")


if __name__ == "__main__":
    main()
