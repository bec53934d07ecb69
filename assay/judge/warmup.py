"""A warm process that forks candidates and test workers in pairs, run as a program; it holds no
secrets.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import linecache
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from assay.judge import candidate, repl, reuse, worker
from assay.judge.codec import loads
from assay.judge.protocol import NOT_REUSABLE
from assay.judge.proxy import Connection
from assay.judge.wire_job import INTERPRETER
from assay.sandbox.zygote import serve

if TYPE_CHECKING:
    from assay.judge.protocol import FramedSocket

PLAIN = (
    "__future__", "abc", "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal",
    "enum", "fractions",
    "functools", "heapq", "io", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "time",
    "typing",
)  # fmt: skip
"""What programs import often enough that each should not pay for it."""

REHEARSAL: dict[str, Any] = {
    "program": """
from typing import Dict, List, Optional, Tuple

def f(numbers: List[float], threshold: float = 1.0) -> Dict[str, Tuple[int, ...]]:
    \"\"\" What most programs do. \"\"\"
    found = {}
    for at, number in enumerate(sorted(numbers, key=lambda it: -it)):
        if abs(number) < threshold and not number % 2:
            found[str(number).strip()] = tuple(range(at))
    return found
""",
    "setup": "from typing import List", "entry_point": "f", "checker": "", "order": [0],
    "stop_early": True,
    "mutates": False, "handles": False, "callbacks": False,
    "checks": ["def check(f):\n    assert f([2.0, 0.5, 0], 1.0) == {'0': (0, 1)}\n    assert not "
               "f([])\ncheck(f)"],
}  # fmt: skip
TIMES = 12
"""Python specialises code after eight runs."""


def rehearse() -> None:
    """Judge a program of our own in this very process, so that forks find caches filled and code
    specialised.
    """
    replies: list[bytes] = []

    def mark(_: bytes) -> None:
        """What a candidate says first; nobody listens."""

    def answer(frame: bytes) -> None:
        kind, number, *parts = loads(frame)
        replies.append(inside.answered(number, kind, parts))

    wire = cast(
        "FramedSocket",
        SimpleNamespace(
            send=answer,
            receive=replies.pop,
            quiet=lambda: True,
            mark=mark,
            marked=lambda: NOT_REUSABLE,
        ),
    )
    for _ in range(TIMES):
        inside = candidate.Candidate(wire)
        found = worker.report(REHEARSAL, Connection(wire))
        assert found["checks"] == [["held", ""]], found
    del sys.modules[candidate.MODULE]
    reuse.compiled.cache_clear()


def rehearse_blocks() -> None:
    """The same for interpreters: blocks that show something, and blocks that raise."""
    with contextlib.redirect_stdout(io.StringIO()):
        for end in ("sorted(found)", "found[0]") * TIMES:
            repl.ran(
                f"{REHEARSAL['program']}\nprint(found := f([2.0, 0.5, 0]))\n{end}", "<block>", {}
            )
    del builtins._  # type: ignore[attr-defined]  # what was shown last
    linecache.clearcache()


def main() -> None:
    """Warm up, wall in, and fork on command until the supervisor hangs up."""
    for name in PLAIN:
        importlib.import_module(name)
    kind = sys.argv[2]
    if kind != "plain":
        importlib.import_module("numpy").random.seed(0)
    rehearse()
    if kind == INTERPRETER:
        rehearse_blocks()
    serve(
        int(sys.argv[1]),
        leaf=repl.main if kind == INTERPRETER else candidate.main,
        worker=worker.main,
    )


if __name__ == "__main__":
    main()
