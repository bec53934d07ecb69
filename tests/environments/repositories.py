"""A small repository with a bug, its tests and its fix."""

from __future__ import annotations

from pathlib import Path

from assay.judge.patches import unified
from assay.types import RepositoryTests, Task

SOURCE = "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return 2 * a\n"
FIXED = SOURCE.replace("a - b", "a + b")
TESTS = (
    "from calc import add, twice\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
    "def test_twice():\n    assert twice(2) == 4\n"
)
FIX = unified({"calc.py": SOURCE}, {"calc.py": FIXED})


def repository(folder: Path, hidden: bool = True) -> Task:
    """The task, whose tree lies in a new folder."""
    tree = folder / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "calc.py").write_text(SOURCE)
    (tree / "tests" / "test_calc.py").write_text(TESTS)
    names = [f"tests/test_calc.py::test_{name}" for name in ("add", "twice")]
    check = RepositoryTests(str(tree), (names[0],), (names[1],), hidden=hidden)
    return Task("calc/0", "add subtracts.", (check,), "", language="diff", reference=FIX)
