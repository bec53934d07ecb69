"""Runs a notebook's cells in one namespace: a program that the service sends to the sandbox.

Standard input holds [cells, seconds for each]; each cell adds a line of JSON to the file RESULTS.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from assay.sandbox.blocks import described, new_main, run_block

RESULTS = ".cells"
SHOWN = 65_536
"""Bytes of a stream, and characters of a value, that are kept of each cell."""


def main() -> None:
    """Run all cells, also after one that raises."""
    cells, seconds = json.load(sys.stdin)
    files = [tempfile.TemporaryFile(buffering=0) for _ in range(2)]  # noqa: SIM115  until the end
    for standard, file in enumerate(files, start=1):
        os.dup2(file.fileno(), standard)
    names = new_main()
    signal.signal(signal.SIGALRM, too_long)
    with Path(RESULTS).open("w") as results:
        for number, source in enumerate(cells, start=1):
            result = run_cell(source, f"<cell {number}>", names, seconds)
            result |= {"stdout": written(1, sys.stdout), "stderr": written(2, sys.stderr)}
            print(json.dumps(result), file=results, flush=True)


def too_long(*_: object) -> None:
    """The cell's time is up."""
    raise TimeoutError("the cell has run for its cell_timeout")


def run_cell(source: str, name: str, names: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a cell displays, which is the value of its last expression, and what it raises."""
    display: list[dict[str, str]] = []

    def show(value: object) -> None:
        if value is not None:
            display.append({"text/plain": repr(value)[:SHOWN]})
            builtins._ = value  # type: ignore[attr-defined]

    sys.displayhook = show
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        raised = run_block(source, name, names)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if raised is None:
        return {"display": display, "error": []}
    summary = described(raised, name)
    error = {
        "ename": type(raised).__name__, "evalue": str(summary), "traceback": list(summary.format()),
    }  # fmt: skip
    return {"display": display, "error": [error]}


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
