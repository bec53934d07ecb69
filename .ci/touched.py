"""Prints the tests of what differs from a branch: `python .ci/touched.py main`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ALWAYS = ("tests/test_architecture.py", "tests/test_docs.py")
MORE = {
    "sandbox": ("tests/attacks",),
    "judge": ("tests/attacks",),
    "commands": ("tests/end_to_end", "tests/test_first_hour.py", "tests/train/test_forecast.py"),
    "languages": ("tests/judge/test_languages.py",),
    "registry.py": ("tests/test_one_file.py",),
    "recipes": ("tests/config", "tests/end_to_end", "tests/q"),
    "bench": ("tests/test_bench.py",),
}
"""By a folder of the package or beside it, tests beside those of its own name."""


def touched(files: Iterable[str], root: Path) -> list[str]:
    """The folders and files of tests for changed `files`, given from `root`. All for a file of the
    package that has no tests of its own name, and for one that may matter to any test.
    """
    tests = dict.fromkeys(ALWAYS)
    for path in map(Path, files):
        area, name = path.parts[0], path.parts[1] if len(path.parts) > 1 else ""
        if area == "assay":
            folder = f"tests/{name}" if len(path.parts) > 2 else f"tests/test_{name}"
            here = [test for test in (folder, *MORE.get(name, ())) if (root / test).exists()]
            if not here:
                return ["tests"]
            tests |= dict.fromkeys(here)
        elif area in ("examples", "recipes", "bench"):
            tests |= dict.fromkeys((f"tests/test_{area}.py", *MORE.get(area, ())))
        elif area == "tests" and path.name.startswith("test_"):
            tests[path.as_posix()] = None
        elif area == "tests":
            tests[path.parent.as_posix()] = None
        elif area not in ("docs", "README.md"):
            return ["tests"]
    return [path for path in tests if (root / path).exists()]


if __name__ == "__main__":
    words = ["git", "diff", "--name-only", "--merge-base", *sys.argv[1:]]
    changed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    print(*touched(changed, Path.cwd()))  # noqa: T201
