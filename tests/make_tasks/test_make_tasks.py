"""`assay make-tasks`: what it refuses, and tasks of a small package from bug to proof."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.cli import app, explain
from assay.judge import Job, Judge, judge_all
from assay.judge.patches import parse
from assay.make_tasks.maker import Maker
from assay.tasks import load
from assay.types import RepositoryTests, Verdict

CORE = '''"""Numbers and words."""


def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(numbers, start=0):
    result = start
    for number in numbers:
        result = result + number
    return result


def first_words(text, limit=2):
    parts = text.split()
    return " ".join(parts[:limit])


def is_small(number, limit):
    return number >= 0 and not number > limit
'''
TESTS = """
import pytest

from kit.core import clamp, first_words, is_small, total


@pytest.mark.parametrize("value, expected", [(0, 1), (2, 2), (9, 3)])
def test_clamp(value, expected):
    assert clamp(value, 1, 3) == expected


class TestTotal:
    def test_nothing(self):
        assert total([]) == 0

    def test_start(self):
        assert total([1, 2], start=3) == 6


def test_words():
    assert first_words("a b c") == "a b"
    assert first_words("a b c", 1) == "a"


def test_small():
    assert is_small(0, 3) and is_small(3, 3)
    assert not is_small(4, 3) and not is_small(-1, 3)


@pytest.mark.skip
def test_skipped():
    assert total([1]) == 1
"""


def write(folder: Path, **files: str) -> Path:
    known = {"kit/__init__.py": "", "kit/core.py": CORE, "tests/test_core.py": TESTS}
    for name, text in (known | files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def made(package: Path | str, output: Path, *words: str) -> dict[str, Any]:
    arguments = ["make-tasks", str(package), "--output", str(output), "--json", *words]
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a b", "--output", "{new}"], "a b is no folder, no git repository"),
        (["{package}", "{package}", "--output", "{new}"], "two packages have one name"),
        (["{package}", "--output", "{package}"], "exists and is no empty folder"),
        (
            ["{package}", "--output", "{new}", "--url", "http://x/v1"],
            "--url and --model go together",
        ),
        (["{package}", "--output", "{new}", "--environment", "{new}"], "has no bin/python"),
        (["{package}/kit", "--output", "{new}"], "no test of kit passes with pytest in 120 s"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, words: list[str], says: str
) -> None:
    places = {"package": str(write(tmp_path / "package")), "new": str(tmp_path / "new")}
    ran = CliRunner().invoke(app, ["make-tasks", *(one.format(**places) for one in words)])
    assert isinstance(ran.exception, Exception)
    line, code = explain(ran.exception)
    assert (says in line, "\n" in line, code) == (True, False, 2)
    assert not (tmp_path / "new" / "trees").exists()


@pytest.mark.long
def test_three_tasks_of_a_small_package_are_proved_and_show_nothing_of_the_answer(
    tmp_path: Path,
) -> None:
    package = write(tmp_path / "kit", **{"docs/old.md": CORE[CORE.index("def clamp") :]})
    docs = (package / "docs" / "old.md").read_text()
    (package / "docs" / "old.md").write_text(docs[: docs.index("def total")])
    subprocess.run(["git", "init", "-q", package], check=True)
    git = ["git", "-C", str(package), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    result = made(package, tmp_path / "out", "--count", "3", "--slots", "2")
    (report,) = result["packages"]
    assert (result["kept"], report["tests"], report["kept"]) == (3, 7, 3)
    assert report["tried"] == sum(
        count for title, count in report.items()
        if title not in ("package", "tests", "sites", "tried", "same code", "seconds")
    )  # fmt: skip

    tasks = load(str(tmp_path / "out" / "tasks.jsonl"))
    right = judge_all([Job(task, task.reference) for task in tasks])
    empty = judge_all([Job(task, "") for task in tasks], stop_early=False)
    assert [one.verdict for one in right] == [Verdict.PASS] * 3
    assert [one.verdict for one in empty] == [Verdict.WRONG] * 3
    for task, execution in zip(tasks, empty, strict=True):
        (check,) = task.checks
        assert isinstance(check, RepositoryTests)
        assert execution.passed == len(check.pass_to_pass) > 0
        assert len(check.fail_to_pass) + len(check.pass_to_pass) == 7
        (change,) = parse(task.reference or "")
        (hunk,) = change.hunks
        answer = {line.strip() for line in hunk.new.splitlines()} - {
            line.strip() for line in hunk.old.splitlines()
        }
        tree = Path(check.tree)
        texts = {path: path.read_text() for path in tree.rglob("*") if path.is_file()}
        assert not any(line in text for line in answer for text in [task.prompt, *texts.values()]
                       if len(line) > 11)  # fmt: skip
        assert "def clamp" not in hunk.new or tree / "docs/old.md" not in texts
        tests = texts[tree / "tests/test_core.py"]
        for test in check.fail_to_pass:
            assert f"def {test.partition('[')[0].rpartition('::')[2]}(" not in tests
        assert "def test_skipped" in tests
        assert not list(tree.rglob(".git")) + list(tree.rglob("*.pyc"))
        assert task.prompt.startswith("`kit` has a bug.")
        assert "```\n\nFind the cause" in task.prompt


@pytest.mark.long
def test_a_task_of_a_file_with_carriage_returns_is_as_it_was_proved(tmp_path: Path) -> None:
    package = write(tmp_path / "kit")
    (package / "kit" / "core.py").write_bytes(CORE.replace("\n", "\r\n").encode())
    assert made(package, tmp_path / "out", "--count", "1")["kept"] == 1
    (task,) = load(str(tmp_path / "out" / "tasks.jsonl"))
    assert judge_all([Job(task, task.reference)])[0].verdict is Verdict.PASS


@pytest.mark.long
def test_the_same_seed_makes_the_same_tasks_and_another_one_others(tmp_path: Path) -> None:
    package = write(tmp_path / "kit")
    rows = []
    for number, words in enumerate((["--slots", "1"], ["--slots", "2"], ["--seed", "1"])):
        made(package, tmp_path / str(number), "--count", "4", *words)
        rows.append((tmp_path / str(number) / "tasks.jsonl").read_text())
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.long
def test_a_package_whose_bugs_no_test_notices_makes_no_task(tmp_path: Path) -> None:
    tests = "import kit.core\n\n\ndef test_nothing():\n    pass\n"
    package = write(tmp_path / "kit", **{"kit/core.py": "def f(a):\n    return a + 1\n",
                                         "tests/test_core.py": tests})  # fmt: skip
    arguments = ["make-tasks", str(package), "--output", str(tmp_path / "out")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert not (tmp_path / "out" / "trees").exists()


@pytest.mark.long
def test_what_keeps_the_tests_from_running_is_told(tmp_path: Path) -> None:
    package = write(tmp_path / "kit", **{"tests/conftest.py": "import no_such_package\n"})
    ran = CliRunner().invoke(app, ["make-tasks", str(package), "--output", str(tmp_path / "out")])
    assert isinstance(ran.exception, Exception)
    assert str(ran.exception) == (
        "no test of kit passes with pytest in 120 s (ModuleNotFoundError: No module named"
        " 'no_such_package'); name an environment with what they need, or more seconds"
    )


@pytest.mark.long
def test_a_release_that_the_policy_can_read_is_refused(tmp_path: Path) -> None:
    package = write(tmp_path / "kit", **{"iniconfig/__init__.py": "A = 1\n"})
    ran = CliRunner().invoke(app, ["make-tasks", str(package), "--output", str(tmp_path / "out")])
    assert isinstance(ran.exception, Exception)
    assert "kit is also where the policy can read it: " in str(ran.exception)
    assert str(ran.exception).endswith("/iniconfig")


@pytest.mark.long
def test_tests_whose_names_change_from_run_to_run_or_that_measure_time_are_left_out(
    tmp_path: Path,
) -> None:
    tests = """
import pytest

CASES = {(f"n{number}", object()) for number in range(40)}


@pytest.mark.parametrize("name, value", CASES)
def test_of_a_set(name, value):
    assert name


@pytest.mark.parametrize("name", ["a", "b"])
def test_of_a_list(name):
    assert name
"""
    timed = (
        "from timeit import timeit\n\n\ndef test_fast():\n    assert timeit('1', number=1) < 9\n"
    )
    files = {"tests/test_core.py": tests, "tests/test_speed.py": timed}
    tree = write(tmp_path / "kit", **files)

    async def known() -> dict[str, Any]:
        async with Judge(slots=1, stop_early=False, allow_forgeable=True) as judge:
            maker = Maker(judge, tmp_path, RepositoryTests(str(tree), (), ()), 0, same)
            await maker.start()
            return maker.report()

    async def same(_: str, report: str) -> str:
        return report

    assert asyncio.run(known())["tests"] == 2


@pytest.mark.long
def test_ctrl_c_keeps_what_is_made_and_shows_the_table(tmp_path: Path) -> None:
    package, rows = write(tmp_path / "kit"), tmp_path / "out" / "tasks.jsonl"
    words = [
        "-m",
        "assay",
        "make-tasks",
        str(package),
        "--output",
        str(rows.parent),
        "--slots",
        "1",
    ]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        while not rows.exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = len(load(str(rows)))
    assert f"kept {kept} tasks in {rows}" in " ".join(shown.split())
    assert shown.split()[:5] == ["package", "kept", "tried", "sites", "tests"]
