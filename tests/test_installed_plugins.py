"""Plug-ins of installed packages: named by entry points, imported when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REWARD = """
from assay.rewards import reward

@reward
def brevity(rollout):
    '''Short replies.'''
    return 1.0
"""
PACKAGE = "brevity-reward"
KIND = """
from dataclasses import dataclass
from assay.judge.kinds.kind import EachCheck

@dataclass(frozen=True)
class Words:
    words: tuple[str, ...]
    hidden: bool = True

class WordsTests(EachCheck[Words], judges=Words):
    async def judge_check(self, workbench, check, task, program):
        ran = await workbench.run(program)
        return await workbench.compare(ran, "\\n".join(check.words), "")
"""
JUDGED = """
from assay.judge import Job, judge_all
from assay.tasks import task_from_dict
row = {"format": "assay", "id": "a", "prompt": "", "entry_point": "", "checks": [{"words": ["a"]}]}
task = task_from_dict(row)
print(*(one.verdict for one in judge_all([Job(task, "print('a')"), Job(task, "print('b')")])))
"""


def install(folder: Path, package: str, entries: str, **modules: str) -> None:
    """Lay a package out as pip does."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: Makes it short"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text(f"[assay]\n{entries}")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with a folder of installed packages."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )


def test_its_name_is_known_before_it_is_imported_and_works_after(tmp_path: Path) -> None:
    install(tmp_path, PACKAGE, "rewards.brevity = brevity", brevity=REWARD)
    code = (
        "import sys\nfrom assay.rewards import rewards\nfrom assay.registry import suggest\n"
        "rewards.require('brevity')\n"
        "print('brevity' in list(rewards), suggest('brevty', rewards), 'brevity' in sys.modules)\n"
        "print(rewards['brevity'](None), 'brevity' in sys.modules, rewards.summary('brevity'))"
    )
    done = python(tmp_path, "-c", code)
    assert done.stdout == "True did you mean 'brevity'? False\n1.0 True Short replies.\n", done


def test_the_list_shows_it_and_where_it_is_from(tmp_path: Path) -> None:
    install(tmp_path, PACKAGE, "rewards.brevity = brevity", brevity="1 / 0")
    done = python(tmp_path, "-m", "assay", "list", "rewards")
    (line,) = [line for line in done.stdout.splitlines() if "brevity" in line]
    assert "Makes it short" in line
    assert PACKAGE in line
    assert "format" in done.stdout


def test_a_kind_of_tests_of_a_package_judges(tmp_path: Path) -> None:
    install(tmp_path, "words", "kinds.words = words_kind", words_kind=KIND)
    done = python(tmp_path, "-c", JUDGED)
    assert done.stdout == "pass wrong\n", done.stderr


USE = "from assay.rewards import rewards; rewards['brevity']"


@pytest.mark.parametrize(
    ("entries", "source", "words"),
    [
        ("rewards.brevity = brevity", "1 / 0", ("brevity", "ZeroDivisionError")),
        ("rewards.brevity = brevity", "import none_such", ("brevity", "none_such")),
        ("rewards.brevity = brevity", "raise SystemExit(0)", ("brevity", "SystemExit")),
        ("rewards.brevity = absent", "", ("brevity", "absent")),
        ("rewards.brevity = brevity", "x = 1", ("brevity", "registers none")),
        ("rewards.brevty = brevity", REWARD, ("unknown reward 'brevity'", "'brevty'")),
    ],
)
def test_one_that_does_not_work_is_named_with_its_package(
    tmp_path: Path, entries: str, source: str, words: tuple[str, str]
) -> None:
    install(tmp_path, PACKAGE, entries, brevity=source)
    code = f"from assay.errors import SettingsError\ntry: {USE}\n"
    done = python(tmp_path, "-c", f"{code}except SettingsError as error: print(error)")
    (line,) = done.stdout.splitlines()
    assert all(word in line for word in words), line
    assert "unknown" in line or PACKAGE in line


def test_of_two_packages_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    for package in (PACKAGE, "other-reward"):
        install(tmp_path, package, "rewards.brevity = brevity", brevity=REWARD)
    done = python(tmp_path, "-c", USE)
    assert done.returncode
    assert all(package in done.stderr for package in (PACKAGE, "other-reward"))


@pytest.mark.parametrize("entry", ["rewards.tests", "rewrads.brevity", "brevity", "rewards.a-b"])
def test_an_entry_point_that_cannot_be_used_is_ignored_with_a_warning(
    tmp_path: Path, entry: str
) -> None:
    install(tmp_path, PACKAGE, f"{entry} = brevity", brevity="1 / 0")
    code = (
        "from assay.rewards import rewards; print(rewards['tests'].__module__, list(rewards)[:1])"
    )
    done = python(tmp_path, "-c", code)
    assert done.stdout.startswith("assay.rewards.tests")
    assert PACKAGE in done.stderr
    assert entry.removeprefix("rewards.") in done.stderr


def test_a_file_of_the_users_with_the_same_name_is_refused(tmp_path: Path) -> None:
    install(tmp_path, PACKAGE, "rewards.brevity = brevity", brevity=REWARD)
    (tmp_path / "mine.py").write_text(REWARD)
    code = "import sys; from assay.registry import load_plugins; load_plugins(sys.argv[1:])"
    done = python(tmp_path, "-c", code, str(tmp_path / "mine.py"))
    assert "reward 'brevity' is registered twice" in done.stderr
