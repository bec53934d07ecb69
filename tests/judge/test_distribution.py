"""A repository that is not installed still has a version and entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.judge import Job
from assay.judge.distribution import distribution
from assay.judge.kinds.repository_cheats import diff_of
from assay.types import RepositoryTests, Task, Verdict
from tests.judge.opened import judge_all

PYPROJECT = '[project]\nname = "calc.tool"\nversion = "1.5"\nrequires-python = ">=3.8"\n'
FILES = {
    "PKG-INFO": {"PKG-INFO": "Metadata-Version: 2.1\nName: calc-tool\nVersion: 1.5\n\nText\n"},
    "pyproject.toml": {"pyproject.toml": PYPROJECT},
    "poetry": {"pyproject.toml": '[tool.poetry]\nname = "calc-tool"\nversion = "1.5"\n'},
    "setup.cfg": {"setup.cfg": "[metadata]\nname = calc_tool\nversion = 1.5\n"},
    "setup.py": {"setup.py": 'setup(\n    name="calc-tool",\n    version="1.5",\n)\n'},
    "__version__": {
        "pyproject.toml": '[project]\nname = "calc-tool"\ndynamic = ["version"]\n',
        "calc_tool/__init__.py": '"""Text."""\n__version__ = "1.5"\n',
    },
    "_version.py": {
        "setup.cfg": "[metadata]\nname = calc-tool\nversion = attr: calc_tool.VERSION\n",
        "src/calc_tool/_version.py": "__version__: str = '1.5'\n",
        "src/calc_tool/__init__.py": "",
    },
    "PKG-INFO before others": {
        "PKG-INFO": "Name: calc-tool\nVersion: 1.5\n",
        "pyproject.toml": PYPROJECT.replace("1.5", "0.1"),
    },
    "broken before right": {
        "pyproject.toml": "[project\n", "setup.cfg": "[metadata]\nname = calc-tool\nversion=1.5\n",
    },
}  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_name_and_version_are_those_of_the_trees_own_files(tmp_path: Path, name: str) -> None:
    files = distribution(write(tmp_path, FILES[name]), ["calc_tool"])
    assert "calc_tool-1.5.dist-info/METADATA" in files
    assert "Version: 1.5\n" in files["calc_tool-1.5.dist-info/METADATA"]


def test_a_tree_without_a_name_has_no_distribution_and_one_without_a_version_the_lowest(
    tmp_path: Path,
) -> None:
    assert distribution(tmp_path, []) == {}
    write(tmp_path, {"pyproject.toml": '[project]\nname = "../x"\n'})
    assert distribution(tmp_path, []) == {}
    write(tmp_path, {"pyproject.toml": '[project]\nname = "calc"\nversion = "../../1"\n'})
    assert "calc-0.0.0.dist-info/METADATA" in distribution(tmp_path, [])


TESTS = """
import subprocess, sys
from importlib.metadata import entry_points, version
from importlib import metadata

import calc_tool


def test_version():
    assert calc_tool.VERSION == version("calc.tool") == "1.5"


def test_of_a_program():
    code = "import importlib.metadata as m; print(m.version('calc-tool'))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1.5\\n"


def test_entry_points():
    (point,) = metadata.distribution("calc-tool").entry_points
    assert (point.group, point.load()) == ("console_scripts", calc_tool.add)


def test_add():
    assert calc_tool.add(1, 2) == 3
"""
SOURCE = (
    "from importlib.metadata import version\nVERSION = version('calc-tool')\n"
    "def add(a, b):\n    return a - b\n"
)


def test_a_package_that_asks_for_its_own_version_is_judged(tmp_path: Path) -> None:
    scripts = '[project.scripts]\ncalc = "calc_tool:add"\n'
    name, right = "src/calc_tool/__init__.py", SOURCE.replace("a - b", "a + b")
    write(tmp_path, {"pyproject.toml": PYPROJECT + scripts, "tests/test_calc.py": TESTS,
                     name: SOURCE})  # fmt: skip
    at = "tests/test_calc.py::test_"
    others = (f"{at}version", f"{at}of_a_program", f"{at}entry_points")
    check = RepositoryTests(str(tmp_path), (f"{at}add",), others)
    task = Task("calc", "Repair add.", (check,), "", language="diff")
    jobs = [Job(task, diff_of(tmp_path, {name: text})) for text in (right, SOURCE + "\n# x\n")]
    passes, fails = judge_all(jobs, stop_early=False)
    assert (passes.verdict, passes.detail) == (Verdict.PASS, "")
    assert (fails.verdict, fails.passed) == (Verdict.WRONG, 3)
