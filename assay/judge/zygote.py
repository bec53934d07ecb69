"""A warm process that forks candidates and test workers in pairs, run as a program; it holds no secrets."""

from __future__ import annotations

import sys

WARM = (
    "abc", "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "time", "typing",
)  # fmt: skip
"""What programs import often enough that each should not pay for it."""


def main() -> None:
    """Warm up, wall in, and fork on command until the supervisor hangs up."""
    import importlib

    from assay.judge import candidate, worker
    from assay.sandbox.zygote import serve

    for name in WARM:
        importlib.import_module(name)
    serve(int(sys.argv[1]), leaf=candidate.main, worker=worker.main)


if __name__ == "__main__":
    main()
