"""`assay make-tasks`: what it refuses, and tasks of a small package from bug to proof."""

from __future__ import annotations

import asyncio
import io
import json
import re
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
from assay.judge.patches import parse, unified
from assay.judge.repository_tree import tree_of
from assay.make_tasks.asking import open_asking
from assay.make_tasks.history import CommitHistory
from assay.make_tasks.maker import Maker, sample_of, within
from assay.make_tasks.packages import make_tasks
from assay.make_tasks.settings import MakeSettings
from assay.make_tasks.statement import IssueWording
from assay.make_tasks.trials import all_fail, run_tests
from assay.progress import Progress, counted
from assay.tasks import load
from assay.types import Execution, RepositoryTests, Verdict

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
        (["{package}", "--output", "{new}", "--bugs", "edits"], "--bugs edits needs a model"),
        (["{package}", "--output", "{new}", "--bugs", "commits"], "package is no git repository"),
        (["{package}", "--output", "{new}", "--environment", "{new}"], "is no folder"),
        (["{package}", "--output", "{new}", "--environment", "{package}"], "has no bin/python"),
        (["{package}", "--output", "{new}", "--environment", "{bare}"], "has no pytest"),
        (["{package}", "--output", "{new}", "--pytest-arguments", "'"], "--pytest-arguments"),
        pytest.param(
            ["{package}/kit", "--output", "{new}"],
            "no tests in the distribution of kit: pytest collects none; give its git",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["{package}/kit", "--output", "{new}", "--pytest-arguments", "--doctest-modules"],
            "no tests in the distribution of kit: pytest collects none, and no doctest",
            marks=pytest.mark.long,
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, words: list[str], says: str
) -> None:
    places = {name: str(tmp_path / name) for name in ("package", "new", "bare")}
    write(tmp_path / "package")
    (tmp_path / "bare" / "bin").mkdir(parents=True)
    (tmp_path / "bare" / "bin" / "python").touch()
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
        if title not in
        ("package", "tests", "sites", "one_process", "tried", "same code", "seconds")
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
        tree = tree_of(check)
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
        assert "from kit" in task.prompt
        assert "test_" not in task.prompt


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
    assert "No module named 'no_such_package'" in str(ran.exception)
    assert "--environment" in str(ran.exception)


@pytest.mark.long
def test_a_release_that_the_policy_can_read_is_refused(tmp_path: Path) -> None:
    package = write(tmp_path / "kit", **{"iniconfig/__init__.py": "A = 1\n"})
    ran = CliRunner().invoke(app, ["make-tasks", str(package), "--output", str(tmp_path / "out")])
    assert isinstance(ran.exception, Exception)
    assert "the policy could read the code of kit without a bug in " in str(ran.exception)
    assert "/iniconfig; give an --environment without it, or" in str(ran.exception)


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
            maker = Maker(judge, tmp_path, RepositoryTests(str(tree), (), ()), 0, IssueWording())
            await maker.start(2)
            return maker.report()

    assert asyncio.run(known())["tests"] == 2


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_keep_what_is_made_and_show_the_table(
    tmp_path: Path, number: signal.Signals
) -> None:
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
        process.send_signal(number)
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = len(load(str(rows)))
    assert f"kept {counted(kept, 'task')} in {rows}" in " ".join(shown.split())
    assert shown.split()[:5] == ["package", "kept", "tried", "sites", "tests"]


def invoked(*words: object) -> tuple[int, str, str]:
    """The exit code, what is printed, and the error's line."""
    ran = CliRunner().invoke(app, ["make-tasks", *map(str, words)])
    line, code = explain(ran.exception) if isinstance(ran.exception, Exception) else ("", 0)
    return code or ran.exit_code, " ".join(ran.stdout.split()), line


SMALL = {"kit/core.py": "def total(values):\n    return sum(values) + 1\n",
         "tests/test_core.py": "from kit.core import total\n\n\ndef test_total():\n"
         "    assert total([1, 2]) == 4\n\n\ndef test_name():\n    assert total\n"}  # fmt: skip
"""A package of one line that is soon tested."""


def test_a_refused_package_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    good = write(tmp_path / "good", **SMALL)
    bad = write(tmp_path / "bad", **{"tests/test_core.py": "def test_no():\n    assert 0\n"})
    output = tmp_path / "out"
    code, shown, line = invoked(tmp_path / "gone.tar.gz", bad, good, "--output", output,
                                "--count", 1)  # fmt: skip
    assert code == 2
    assert "kept 1 task in" in shown
    assert line.startswith("2 of 3 packages are refused: ")
    assert "gone" in line
    assert "no test of bad passes with pytest (1 failed)" in line
    assert [task.id for task in load(str(output / "tasks.jsonl"))] == ["good/1"]
    assert {tree.name for tree in (output / "trees").iterdir()} == {"good"}


DOCTESTS = '''"""Numbers."""


def clamp(value, low, high):
    """Limit a value.

    >>> clamp(1, 2, 3), clamp(5, 2, 3)
    (2, 3)
    """
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(numbers):
    """Add numbers.

    >>> total([1, 2])
    3
    """
    result = 0
    for number in numbers:
        result = result + number
    return result
'''


@pytest.mark.long
def test_doctests_make_tasks_that_show_what_was_expected(tmp_path: Path) -> None:
    package = write(tmp_path / "kit", **{"kit/core.py": DOCTESTS, "tests/test_core.py": ""})
    words = ["--pytest-arguments", "--doctest-modules", "--count", "2"]
    assert made(package, tmp_path / "out", *words)["kept"] == 2
    for task in load(str(tmp_path / "out" / "tasks.jsonl")):
        (check,) = task.checks
        assert isinstance(check, RepositoryTests)
        assert check.pytest_arguments == ("--doctest-modules",)
        assert check.fail_to_pass[0].startswith("kit/core.py::kit.core.")
        assert "print(repr(" in task.prompt
        right, empty = judge_all([Job(task, task.reference), Job(task, "")])
        assert (right.verdict, empty.verdict) == (Verdict.PASS, Verdict.WRONG)


def test_a_plug_in_that_is_not_installed_is_named(tmp_path: Path) -> None:
    package = write(tmp_path / "kit", **SMALL)
    code, _, line = invoked(package, "--output", tmp_path / "out", "--plugin", "no_such_plugin")
    assert code == 2
    assert "it has no plug-in no_such_plugin; install it into --environment" in line


@pytest.mark.long
def test_flaky_tests_are_named_and_left_out(tmp_path: Path) -> None:
    flaky = (
        "import os\n\n\n"
        + "".join(f"def test_{n}():\n    assert os.urandom(1)[0] % 2\n\n\n" for n in range(8))
        + "def test_steady():\n    from kit.core import total\n    assert total([2, 3]) == 5\n"
    )
    package = write(tmp_path / "kit", **{"tests/test_core.py": flaky})
    words = [package, "--output", tmp_path / "out", "--count", 1, "--reference-runs", 12]
    code, shown, _ = invoked(*words)
    assert code == 0
    assert "kit: flaky, left out: tests/test_core.py::test_" in shown
    assert "most fail" in shown or "kept" in shown
    assert "test_steady" not in shown


@pytest.mark.long
def test_the_slowest_tests_are_left_out_where_all_take_too_long(tmp_path: Path) -> None:
    slow = "import time\n\n\ndef test_slow():\n    time.sleep(600)\n"
    package = write(tmp_path / "kit", **{"tests/test_a.py": slow})
    code, shown, _ = invoked(package, "--output", tmp_path / "out", "--count", 1, "--seconds", 20)
    assert (code, "kit: too slow, left out: 1 test" in shown) == (0, True)
    (task,) = load(str(tmp_path / "out" / "tasks.jsonl"))
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    assert "tests/test_a.py::test_slow" not in check.fail_to_pass + check.pass_to_pass


def test_no_more_tests_are_kept_than_the_time_allows() -> None:
    assert within({"a": 3.0, "b": 1.0, "c": 0.5}, 2.0) == ["c", "b"]
    assert within({"a": 3.0}, 2.0) == []


def test_tests_that_must_go_on_passing_are_drawn_half_from_the_files_of_failing_ones() -> None:
    near, far = [[f"{file}.py::test_{n}" for n in range(60)] for file in ("near", "far")]
    failing = ["near.py::test_x"]
    some = sample_of([*near, *far], failing, 20, 0)
    assert len(some) == len(set(some)) == 20
    assert len(set(some) & set(near)) >= 10
    assert set(some) & set(far)
    assert (
        some == sample_of([*near, *far], failing, 20, 0) != sample_of([*near, *far], failing, 20, 1)
    )
    assert some == [test for test in (*near, *far) if test in some]
    assert sample_of(near, failing, 60, 0) == near
    assert len(sample_of([*near[:3], *far], failing, 20, 0)) == 20


async def made_with(progress: Progress, package: Path, output: Path, count: int) -> dict[str, Any]:
    """What is reported of one package; the progress stays at its last line."""
    judge = Judge(slots=1, stop_early=False, allow_forgeable=True)
    settings = MakeSettings(output, count, 0, 120.0, None)
    makers: list[Maker | CommitHistory] = []
    asking = open_asking("", "", 1)
    await make_tasks([str(package)], makers, {}, progress, judge, asking, settings)
    return makers[0].report()


def test_progress_counts_each_bug_that_is_tried(tmp_path: Path) -> None:
    progress = Progress(io.StringIO())
    package = write(tmp_path / "kit", **SMALL)
    report = asyncio.run(made_with(progress, package, tmp_path / "out", 1))
    tried = counted(report["tried"], "bug")
    assert progress.line().startswith(f"{tried} of kit tried, tasks 1 of 1")


def test_a_bug_with_which_most_tests_fail_is_left_out(tmp_path: Path) -> None:
    more = SMALL["tests/test_core.py"] + "\n\ndef test_more():\n    assert total([3]) == 4\n"
    package = write(tmp_path / "kit", **{**SMALL, "tests/test_core.py": more})
    report = asyncio.run(made_with(Progress(io.StringIO()), package, tmp_path / "out", 1))
    assert report["kept"] == 0
    assert report["most fail"] == report["tried"] > 0


@pytest.mark.long
def test_a_parametrised_test_s_statement_has_its_values(tmp_path: Path) -> None:
    values = (
        "import pytest\n\nfrom kit.core import clamp\n\n\n"
        + TESTS[TESTS.index("@pytest.mark.parametrize") : TESTS.index("class TestTotal")]
    )
    package = write(tmp_path / "kit", **{"tests/test_core.py": values})
    made(package, tmp_path / "out", "--count", "1")
    (task,) = load(str(tmp_path / "out" / "tasks.jsonl"))
    assert re.search(r"print\(repr\(clamp\([029], 1, 3\)\)\)", task.prompt)


@pytest.mark.long
def test_a_table_says_why_no_bug_was_kept(tmp_path: Path) -> None:
    tests = "import kit.core\n\n\ndef test_nothing():\n    pass\n"
    package = write(tmp_path / "kit", **{"kit/core.py": "def f(a):\n    return a + 1\n",
                                         "tests/test_core.py": tests})  # fmt: skip
    code, shown, _ = invoked(package, "--output", tmp_path / "out")
    assert (code, "no test fails" in shown, "no task was kept" in shown) == (0, True, True)


DEPENDENT = """
from kit.core import total

state = []


def test_first():
    state.append(total([1, 2]))
    assert state == [3]


def test_second():
    assert not state or total(state) == 3
    state.clear()
    assert total([2]) == 2


def test_third():
    assert not state
    state.append(1)
"""


@pytest.mark.parametrize(("tests", "together"), [(TESTS, True), (DEPENDENT, False)])
def test_tests_run_in_one_process_where_their_order_does_not_matter(
    tmp_path: Path, tests: str, together: bool
) -> None:
    tree = write(tmp_path / "kit", **{"tests/test_core.py": tests})

    ids = [f"tests/test_core.py::{name}" for name in ("TestTotal::test_start", "test_words")]
    ids = ids if together else [f"tests/test_core.py::test_{name}" for name in ("first", "third")]
    wrong = {"kit/core.py": CORE.replace("result + number", "number").encode()}

    async def report() -> tuple[dict[str, Any], list[str]]:
        async with Judge(slots=1, stop_early=False, allow_forgeable=True) as judge:
            maker = Maker(judge, tmp_path, RepositoryTests(str(tree), (), ()), 0, IssueWording())
            await maker.start(2)
            tests = await maker._with_bug(wrong, ids)
            return maker.report(), [test.outcome for test in tests]

    result, ends = asyncio.run(report())
    assert (result["one_process"], result["tests"]) == (together, 7 if together else 3)
    assert ends == ["failed", "passed"]


@pytest.mark.long
def test_tests_that_held_in_one_task_s_proof_are_not_run_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[set[str]] = []
    judged = Maker._judged

    async def noted(maker: Maker, program: str, check: RepositoryTests) -> Execution:
        proofs.append({*check.pass_to_pass})
        return await judged(maker, program, check)

    monkeypatch.setattr(Maker, "_judged", noted)
    made(write(tmp_path / "kit"), tmp_path / "out", "--count", "3", "--slots", "1")
    first, second, third = proofs
    assert first
    assert not second & first
    assert not third & (first | second)
    tasks = load(str(tmp_path / "out" / "tasks.jsonl"))
    passes = judge_all([Job(task, task.reference) for task in tasks])
    assert [one.verdict for one in passes] == [Verdict.PASS] * 3


def test_a_task_of_which_one_test_passes_without_a_change_is_unproven(tmp_path: Path) -> None:
    tree = write(tmp_path / "kit", **SMALL)
    ids = ["tests/test_core.py::test_total", "tests/test_core.py::test_name"]
    bug = unified(
        *({"kit/core.py": SMALL["kit/core.py"].replace("+ 1", end)} for end in ("+ 1", ""))
    )

    async def fail(*tests: str) -> bool:
        check = RepositoryTests(str(tree), tests, (), seconds=20.0, bug=bug)
        async with Judge(slots=1, allow_forgeable=True) as judge:
            return await all_fail(judge, check)

    assert asyncio.run(fail(ids[0]))
    assert not asyncio.run(fail(*ids))


def outcomes(tree: Path, changed: bytes, tests: list[str]) -> dict[str, str]:
    """What comes of tests in one process where the package's file has this text."""

    async def run() -> dict[str, str]:
        async with Judge(slots=1, stop_early=False, allow_forgeable=True) as judge:
            base = RepositoryTests(str(tree), tuple(tests), (), seconds=20.0)
            results, _, _ = await run_tests(judge, base, tests, {"kit/core.py": changed})
            return {test.name.rpartition("::")[2]: test.outcome for test in results}

    return asyncio.run(run())


def test_tests_in_one_process_fail_pass_vanish_and_end_as_each_does(tmp_path: Path) -> None:
    tree = write(tmp_path / "kit")
    ids = [f"tests/test_core.py::{name}" for name in ("test_words", "test_small", "test_gone")]
    wrong = CORE.replace("limit=2", "limit=1").encode()
    assert outcomes(tree, wrong, ids) == {
        "test_words": "failed", "test_small": "passed", "test_gone": "missing",
    }  # fmt: skip
    ends = CORE.replace("    return number >= 0", "    __import__('os')._exit(0)\n    return 1")
    assert outcomes(tree, ends.encode(), ids[:2]) == {
        "test_words": "passed", "test_small": "ended",
    }  # fmt: skip
    assert set(outcomes(tree, b"1 / 0", ids[:2]).values()) == {"missing"}
    hangs = CORE.replace("    return number >= 0", "    while True: pass\n    return 1")
    assert outcomes(tree, hangs.encode(), ids[:2]) == {
        "test_words": "passed", "test_small": "timeout",
    }  # fmt: skip
