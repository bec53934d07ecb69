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
    "commands": ("tests/end_to_end",),
}
"""By a folder of the package, tests beside those of its own name."""


def touched(files: Iterable[str], root: Path) -> list[str]:
    """The folders and files of tests for changed `files`, given from `root`. All where a file that
    is not below assay/, tests/ or docs/ may matter to any test.
    """
    found = dict.fromkeys(ALWAYS)
    for path in map(Path, files):
        area, name = path.parts[0], path.parts[1] if len(path.parts) > 1 else ""
        if area == "assay":
            own = f"tests/{name}" if path.suffix != ".py" or len(path.parts) > 2 else ""
            found |= dict.fromkeys((own or f"tests/test_{name}", *MORE.get(name, ())))
        elif area == "tests" and path.name.startswith("test_"):
            found[path.as_posix()] = None
        elif area == "tests":
            found[path.parent.as_posix()] = None
        elif area not in ("docs", "README.md", "bench", "examples", "recipes"):
            return ["tests"]
    return [path for path in found if (root / path).exists()]


if __name__ == "__main__":
    words = ["git", "diff", "--name-only", "--merge-base", *sys.argv[1:]]
    changed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    print(*touched(changed, Path.cwd()))  # noqa: T201
