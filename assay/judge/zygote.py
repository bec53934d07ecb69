"""A warm process that forks candidates and test workers in pairs, run as a program; it holds no secrets."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from assay.judge import candidate, worker
from assay.judge.boundary import Wire
from assay.judge.candidate import Candidate
from assay.judge.codec import loads
from assay.judge.proxy import Connection
from assay.sandbox.zygote import serve

WARM: dict[str, tuple[str, ...]] = {"numpy": ("numpy",)}
"""What each kind of zygote imports beside PLAIN."""
PLAIN = (
    "abc", "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "time", "typing",
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
    "setup": "from typing import List", "entry_point": "f", "checker": "", "order": [0], "stop_early": True,
    "mutates": False, "handles": False, "callbacks": False,
    "checks": ["def check(f):\n    assert f([2.0, 0.5, 0], 1.0) == {'0': (0, 1)}\n    assert not f([])\ncheck(f)"],
}  # fmt: skip
TIMES = 12
"""Python specialises code after eight runs."""


class Inside(Wire):
    """A wire to a candidate in this very process: only for the rehearsal, whose program is our own."""

    def __init__(self) -> None:
        self.candidate = Candidate(self)

    def begin(self, *descriptors: int) -> None:
        """Nothing to begin."""

    def quiet(self) -> bool:
        """Nothing waits."""
        return True

    def send(self, frame: bytes) -> None:
        """Have a request answered."""
        kind, number, *parts = loads(frame)
        self.reply = self.candidate.answered(number, kind, parts)

    def receive(self) -> bytes:
        """The answer."""
        return self.reply


def rehearse() -> None:
    """Judge a program of our own, so that forks find everything in place: caches filled, code specialised."""
    for _ in range(TIMES):
        found = worker.report(REHEARSAL, Connection(Inside()))
        assert found["checks"] == [["held", ""]], found
    del sys.modules[candidate.MODULE]
    worker.compiled.cache_clear()


def main() -> None:
    """Warm up, wall in, and fork on command until the supervisor hangs up."""
    for name in (*PLAIN, *WARM.get(sys.argv[2], ())):
        importlib.import_module(name)
    rehearse()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    serve(int(sys.argv[1]), leaf=candidate.main, worker=worker.main)


if __name__ == "__main__":
    main()
