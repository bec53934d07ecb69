"""A warm process that forks candidates and test workers in pairs, run as a program; it holds no secrets."""

from __future__ import annotations

import sys

WARM: dict[str, tuple[str, ...]] = {"numpy": ("numpy",)}
"""What each kind of zygote imports beside PLAIN."""
PLAIN = (
    "abc", "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "time", "typing",
)  # fmt: skip
"""What programs import often enough that each should not pay for it."""


def main() -> None:
    """Warm up, wall in, and fork on command until the supervisor hangs up."""
    import importlib

    from assay.judge import candidate, worker
    from assay.sandbox.zygote import serve

    for name in (*PLAIN, *WARM.get(sys.argv[2], ())):
        importlib.import_module(name)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    serve(int(sys.argv[1]), leaf=candidate.main, worker=worker.main)


if __name__ == "__main__":
    main()
