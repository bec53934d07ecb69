"""A small repository with a fault, for tests."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from assay.judge.kinds.repository import PYTEST
from assay.judge.kinds.repository_cheats import diff_of
from assay.types import RepositoryTests, Task

SOURCE = '''"""A small package."""


def add(a, b):
    return a - b


def double(a):
    return 2 * a
'''
TESTS = """
import unittest

import pytest

from calc import add, double


def test_add():
    assert add(1, 2) == 3


@pytest.mark.parametrize("a, b", [(1, 1), (2, 5)])
def test_sums(a, b):
    assert add(a, b) == a + b


def test_double(eight):
    assert double(4) == eight


@pytest.mark.xfail
def test_wrong():
    assert double(1) == 1


class TestClass(unittest.TestCase):
    def test_method(self):
        self.assertEqual(double(1), 2)
"""
FILES = {
    "src/calc/__init__.py": SOURCE,
    "tests/test_calc.py": TESTS,
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef eight():\n    return 8\n",
    "pyproject.toml": '[project]\nname = "calc"\n\n[tool.pytest.ini_options]\naddopts = "--cov"\n',
}
AT = "tests/test_calc.py::"
FIXES = (f"{AT}test_add", f"{AT}test_sums[1-1]", f"{AT}test_sums[2-5]")
OTHERS = (f"{AT}test_double", f"{AT}test_wrong", f"{AT}TestClass::test_method")


def copy_pytest(packages: Path) -> None:
    """Install pytest into a folder of packages."""
    spec = find_spec("pytest")
    assert spec
    assert spec.origin
    ours = Path(spec.origin).parents[1]
    for source in (*(ours / name for name in PYTEST), *ours.glob("pluggy-*.dist-info")):
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, packages / source.name)


def write_tree(folder: Path) -> Path:
    """The repository, in this folder."""
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def calc_task(tree: Path, **fields: object) -> Task:
    """The task of repairing it; fields of its check."""
    given = {"fail_to_pass": FIXES, "pass_to_pass": OTHERS, **fields}
    check = RepositoryTests(str(tree), **given)  # type: ignore[arg-type]
    right = diff_of(tree, {"src/calc/__init__.py": SOURCE.replace("a - b", "a + b")})
    return Task("calc", "Repair add.", (check,), "", language="diff", reference=right)


def appended(tree: Path, text: str, right: bool = False) -> str:
    """The diff that adds this text to the source, with or without the repair."""
    source = SOURCE.replace("a - b", "a + b") if right else SOURCE
    return diff_of(tree, {"src/calc/__init__.py": f"{source}\n{text}\n"})
