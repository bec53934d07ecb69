"""Changes of a repository: what passes and what each test's outcome is."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.checks import RepositoryTests
from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge.canaries import turned_file
from assay.judge.kinds.repository_cheats import diff_of
from assay.judge.prepared_task import PreparedTask
from assay.judge.repository_tree import tree_of
from assay.judge.verdict import execution_of
from assay.rewards.tests import tests as reward_of_tests
from assay.sandbox.limits import Limits
from assay.tasks import exact, task_from_dict
from assay.tasks.jsonl import jsonl
from assay.tasks.rows import Row
from assay.types import Cause, Completion, Execution, Rollout, Task, Turn, Verdict
from tests.judge.opened import judge_all
from tests.judge.processes import descendants
from tests.repositories import (
    AT,
    FIXES,
    OTHERS,
    SOURCE,
    appended,
    calc_task,
    copy_pytest,
    write_tree,
)

RIGHT = SOURCE.replace("a - b", "a + b")
HALF = SOURCE.replace("return a - b", "return 3")
BROKEN = RIGHT.replace("2 * a", "3 * a")
FEW = {"fail_to_pass": FIXES[:1], "pass_to_pass": OTHERS[:1]}
"""Fields of a check that is sooner judged, where which tests run does not matter."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree"))


def judged(task: Task, *programs: str | None) -> list[Execution]:
    return judge_all([Job(task, program) for program in programs], stop_early=False)


def outcomes(execution: Execution) -> dict[str, str]:
    return {test.name.removeprefix(AT): test.outcome for test in execution.tests}


def test_a_verdict_says_what_came_of_each_test(tree: Path) -> None:
    task = calc_task(tree)
    right, none, half = judged(task, task.reference, "", as_diff(tree, HALF))
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 6, 6)
    assert (right.proven, right.forgeable) == (False, True)
    assert outcomes(right) == {
        "test_add": "passed", "test_sums[1-1]": "passed", "test_sums[2-5]": "passed",
        "test_double": "passed", "test_wrong": "xfailed", "TestClass::test_method": "passed",
    }  # fmt: skip
    assert all(0 < test.seconds < 60 for test in right.tests)
    assert [test.is_fix for test in right.tests] == [True] * 3 + [False] * 3
    assert (none.verdict, none.passed) == (Verdict.WRONG, 3)
    assert none.detail.startswith(f"{AT}test_add: failed: E")
    assert outcomes(half)["test_sums[1-1]"] == "failed"
    assert execution_of(json.loads(json.dumps(asdict(half)))) == half


def test_a_judge_that_stops_early_runs_no_test_after_one_that_fails(tree: Path) -> None:
    task, broken = calc_task(tree), as_diff(tree, BROKEN)
    jobs = [Job(task, program) for program in (task.reference, "", broken)]
    right, none, broken_ = judge_all(jobs)
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 6, 6)
    for one, repaired, failed in ((none, 0, [*FIXES]), (broken_, 3, [*OTHERS])):
        ran = [test for test in one.tests if test.outcome != "missing"]
        (last,) = [test for test in ran if not test.holds]
        assert (one.verdict, one.total, last.name in failed) == (Verdict.WRONG, 6, True)
        assert repaired <= one.passed == len(ran) - 1
        assert one.detail.startswith(f"{last.name}: failed: ")


def as_diff(tree: Path, source: str) -> str:
    return diff_of(tree, {"src/calc/__init__.py": source})


def test_whole_files_are_a_change_too(tree: Path) -> None:
    (one,) = judged(calc_task(tree), json.dumps({"src/calc/__init__.py": RIGHT}))
    assert one.verdict is Verdict.PASS


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: os.waitpid(-1, os.WNOHANG)"])
def test_a_right_change_may_take_the_statuses_of_processes(tree: Path, handler: str) -> None:
    takes = f"import os, signal\nsignal.signal(signal.SIGCHLD, {handler})\n"
    (one,) = judged(calc_task(tree), as_diff(tree, takes + RIGHT))
    assert one.verdict is Verdict.PASS, one.detail


def test_a_cut_id_stands_for_the_only_test_that_begins_so(tree: Path) -> None:
    task = calc_task(tree, fail_to_pass=(f"{AT}test_sums[1-",), pass_to_pass=())
    (one,) = judged(task, task.reference)
    assert (one.verdict, one.total) == (Verdict.PASS, 1)
    task = calc_task(tree, fail_to_pass=(f"{AT}test_sums[",), pass_to_pass=())
    (one,) = judged(task, task.reference)
    assert outcomes(one) == {"test_sums[": "missing"}


SPECIAL = """
import os, sys, time
import pytest
from calc import add

@pytest.mark.skipif(add(1, 1) != 0, reason="repaired")
def test_skipped():
    pass

def test_slow():
    time.sleep(30 if add(1, 1) == 2 else 0)

def test_exits():
    os._exit(0)

def test_leaves_state():
    sys.modules["calc"].add = None

def test_sees_none():
    assert sys.modules["calc"].add is add

@pytest.fixture
def broken():
    yield 1
    raise ValueError("in the teardown")

def test_teardown(broken):
    assert broken

def test_after_all():
    assert add(1, 1) == 2
"""
SPECIAL_OUTCOMES = {
    "test_skipped": "skipped", "test_slow": "timeout", "test_exits": "ended",
    "test_leaves_state": "passed", "test_sees_none": "passed", "test_teardown": "failed",
    "test_after_all": "passed", "test_absent": "missing",
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ("test_exits", "test_leaves_state", "test_sees_none"),
        pytest.param(tuple(SPECIAL_OUTCOMES), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_each_test_has_a_process_a_time_and_an_outcome(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "tests/test_special.py").write_text(SPECIAL)
    ids = tuple(f"tests/test_special.py::{name}" for name in names)
    task = calc_task(tree, fail_to_pass=ids, pass_to_pass=(), seconds=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.judge.kinds.repository.TEST_SECONDS", 4.0)
        (one,) = judged(task, task.reference)
    found = {test.name.partition("::")[2]: test.outcome for test in one.tests}
    assert found == {name: SPECIAL_OUTCOMES[name] for name in names}
    assert one.verdict is Verdict.WRONG


SKIPS = """
import pytest
from calc import add

def test_fixed():
    assert add(1, 1) == 2

@pytest.mark.skip(reason="needs another machine")
def test_elsewhere():
    pass

@pytest.mark.skipif(add(3, 3) == 5, reason="the program says so")
def test_anywhere():
    pass

@pytest.mark.skipif(add(1, 1) == 2, reason="repaired")
def test_with_the_fault_only():
    pass
"""


AT_SKIPS = "tests/test_skips.py::"
SKIPPED = tuple(
    f"{AT_SKIPS}{name}" for name in ("test_elsewhere", "test_anywhere", "test_with_the_fault_only")
)


def skipping_task(folder: Path) -> Task:
    """The task with tests that are skipped, of which one is to be repaired."""
    tree = write_tree(folder / "tree")
    (tree / "tests/test_skips.py").write_text(SKIPS)
    return calc_task(tree, fail_to_pass=(f"{AT_SKIPS}test_fixed",), pass_to_pass=SKIPPED)


def test_a_test_that_the_right_change_skips_may_be_skipped(tmp_path: Path) -> None:
    task, tree = skipping_task(tmp_path), tmp_path / "tree"
    skips = as_diff(
        tree, RIGHT + "\n_add = add\ndef add(a, b):\n    return _add(a, b) - (a == 3)\n"
    )
    right, skipping = judged(task, task.reference, skips)
    assert (right.verdict, right.passed, right.forgeable) == (Verdict.PASS, 4, True)
    assert [test.outcome for test in right.tests] == ["passed", "xskipped", "passed", "xskipped"]
    assert (skipping.verdict, skipping.passed) == (Verdict.WRONG, 3)
    assert skipping.detail.startswith(f"{AT_SKIPS}test_anywhere: skipped")


@pytest.mark.long
def test_a_skipped_test_is_no_repair_and_without_a_right_change_no_pass(tmp_path: Path) -> None:
    task = skipping_task(tmp_path)
    (none,) = judged(task, "")
    assert none.verdict is Verdict.WRONG
    fix = replace(task, checks=(replace(task.checks[0], fail_to_pass=SKIPPED[:1]),))  # type: ignore[type-var]
    (one,) = judged(fix, task.reference)
    assert one.verdict is Verdict.WRONG, "a test to repair is never skipped"
    without = replace(task, reference=None)
    (one,) = judged(without, task.reference)
    assert (one.verdict, one.detail.partition(": ")[0]) == (Verdict.WRONG, SKIPPED[2])


@pytest.mark.long
def test_every_repository_check_of_a_task_counts(tree: Path) -> None:
    shown, hidden = (calc_task(tree, fail_to_pass=(test,)).checks[0] for test in FIXES[:2])
    task = replace(calc_task(tree), checks=(shown, hidden))
    right, half = judged(task, task.reference, as_diff(tree, HALF))
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 8, 8)
    assert (half.verdict, half.passed) == (Verdict.WRONG, 7)


@pytest.mark.long
@pytest.mark.parametrize("late", ["time.sleep(99)", "test"])
def test_a_change_of_which_nothing_fails_but_time_is_out_of_time(tmp_path: Path, late: str) -> None:
    tree, name = write_tree(tmp_path / "tree"), "tests/test_slow.py"
    code = "def test():\n    time.sleep(99)\n" if late == "test" else f"{late}\ndef test(): pass\n"
    (tree / name).write_text(f"import time\n{code}")
    task = calc_task(tree, fail_to_pass=(f"{name}::test",), pass_to_pass=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.judge.kinds.repository.TEST_SECONDS", 1.5)
        (one,) = judged(task, task.reference)
    assert one.verdict is Verdict.TIMEOUT, "which is not kept for the next time"
    assert [test.outcome for test in one.tests] == ["timeout"]


@pytest.mark.parametrize(
    "fields",
    [{"roots": ("broken",)}, {"test_patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"}],
)
def test_a_fault_of_the_task_is_no_failure_of_the_program(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    tree = write_tree(tmp_path / "tree")
    (tmp_path / "broken/bin").mkdir(parents=True)
    (tmp_path / "broken/bin/python").write_text("#!/none\n")
    (tmp_path / "broken/bin/python").chmod(0o755)
    if "roots" in fields:
        fields = {"roots": (str(tmp_path / "broken"),)}
    task = calc_task(tree, **fields)
    (one,) = judged(task, task.reference)
    assert (one.verdict, one.cause) == (Verdict.UNJUDGED, Cause.TASK)


@pytest.mark.parametrize(
    ("path", "text"),
    [("pytest.toml", '[pytest]\npython_functions = ["probe_*"]\n'),
     ("tests/pytest.ini", "[pytest]\npython_functions = probe_*\n")],
)  # fmt: skip
def test_pytest_finds_its_configuration_as_it_does_elsewhere(
    tmp_path: Path, path: str, text: str
) -> None:
    tree, name = write_tree(tmp_path / "tree"), "tests/test_probe.py"
    (tree / name).write_text("from calc import add\ndef probe_add():\n    assert add(1, 1) == 2\n")
    cheat = calc_task(tree).reference
    (tree / path).write_text(text)
    task = calc_task(tree, fail_to_pass=(f"{name}::probe_add",), pass_to_pass=())
    other = f"{cheat}{diff_of(tree, {path: text.replace('probe', 'none')})}"
    right, configured = judged(task, task.reference, other)
    assert (right.verdict, configured.verdict) == (Verdict.PASS, Verdict.PASS), right.detail


def test_tests_that_the_program_never_sees_are_added(tree: Path) -> None:
    new = "tests/test_new.py"
    patch = diff_of(
        tree, {new: "from calc import add\ndef test_new():\n    assert add(2, 2) == 4\n"}
    )
    task = calc_task(
        tree, fail_to_pass=(f"{new}::test_new",), pass_to_pass=OTHERS[:1], test_patch=patch
    )
    own = diff_of(tree, {new: "def test_new():\n    pass\n"})
    right, wrong = judged(task, task.reference, own)
    assert (right.verdict, right.passed) == (Verdict.PASS, 2)
    assert (wrong.verdict, wrong.passed) == (Verdict.WRONG, 1)


@pytest.mark.long
def test_a_change_whose_box_the_machine_ends_is_judged_again(tree: Path) -> None:
    slow = f"import time\ntime.sleep(1)\n{RIGHT}"

    async def killed(times: int) -> tuple[Execution, Execution]:
        async with Judge(slots=1) as judge:
            job = Job(calc_task(tree), as_diff(tree, slow))
            running = asyncio.create_task(judge.run(job))
            ended = list[int]()
            while len(ended) < times and not running.done():
                process = judge._sandbox._boxes._process
                if process and process.pid not in ended and len(descendants(process.pid)) > 2:
                    ended.append(process.pid)
                    process.kill()
                await asyncio.sleep(0.05)
            return await running, await judge.run(job)

    once, _ = asyncio.run(killed(1))
    assert once.verdict is Verdict.PASS
    twice, after = asyncio.run(killed(2))
    assert (twice.verdict, twice.detail) == (Verdict.INFRA, "the box has ended")
    assert (twice.passed, twice.forgeable) == (0, False)
    assert after.verdict is Verdict.PASS  # the machine's failure is not remembered


@pytest.mark.long
def test_a_program_that_never_ends_is_out_of_time(tree: Path) -> None:
    task = calc_task(tree, seconds=3.0)
    (one,) = judged(task, appended(tree, "while True: pass", right=True))
    assert one.verdict in (Verdict.TIMEOUT, Verdict.WRONG)
    assert one.passed == 0


TURNED = """
import unittest
import pytest
class TestA(unittest.TestCase):
    def test_b(self):
        self.x = 1
        assert self.x == 1
    def test_equal(self):
        self.assertEqual({"a": [1]}, dict(a=[1]), "no")
    def test_less(self):
        self.assertLess(1, 2)
    def test_raises(self):
        with self.assertRaises(ValueError):
            int("x")
def test_c(): assert 1
def test_argument(a=1):
    assert a == abs(-1)
def test_argument_of_both(a=1):
    assert abs(a) == a
def test_list():
    assert [abs(1), "x"] == [1, "x"]
def test_error():
    with pytest.raises(ValueError, match="x"):
        int("x")
def test_d():
    return
    assert 1
def test_e():
    print(1)
"""


def test_canaries_fail_where_their_tests_pass() -> None:
    names = ("TestA::test_b", "TestA::test_equal", "TestA::test_less", "TestA::test_raises",
             "test_c", "test_argument", "test_argument_of_both", "test_list", "test_error",
             "test_d", "test_e", "test_none")  # fmt: skip
    text, tests = turned_file(TURNED, [f"t.py::{name}" for name in names], Random(1))
    assert tests == [f"t.py::{name}" for name in names[:9]]
    straight, turned = ({"__name__": "t"}, {"__name__": "t"})
    exec(compile(TURNED, "t", "exec"), straight)
    exec(compile(text, "t", "exec"), turned)
    for name in names[:9]:
        *scopes, last = name.split("::")
        for module, fails in ((straight, False), (turned, True)):
            test: Any = module[scopes[0]](last) if scopes else None  # type: ignore[operator]
            run: Any = getattr(test, last) if scopes else module[last]
            with pytest.raises((AssertionError, ValueError)) if fails else nullcontext():
                run()


def test_a_file_without_what_can_be_turned_has_no_canary() -> None:
    for source in ("def test_a():\n    print(1)\n", "def test_a(:", ""):
        assert turned_file(source, ["t.py::test_a"], Random(1)) == (source, [])


def row(**fields: object) -> dict[str, Any]:
    return {"id": "calc", "prompt": "Repair add.", "tree": "tree", "fail_to_pass": list(FIXES),
            "pass_to_pass": list(OTHERS), **fields}  # fmt: skip


def loaded(folder: Path, **fields: object) -> Task:
    file = folder / "tasks.jsonl"
    file.write_text(json.dumps(row(**fields)) + "\n")
    (task,) = jsonl(str(file))
    return task


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python of the system's")
def test_a_virtual_environment_of_the_systems_python_has_its_packages(tmp_path: Path) -> None:
    """Debian's names other folders where it does not start in the environment."""
    tree, home = write_tree(tmp_path / "tree"), tmp_path / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", home], check=True)
    copy_pytest(next(home.glob("lib/python3*/site-packages")))
    right, none = judged(calc_task(tree, roots=(str(home),), **FEW), as_diff(tree, RIGHT), "")
    assert (right.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right.detail


def test_a_row_names_its_tree_beside_its_file(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    right = as_diff(tree, RIGHT)
    task = loaded(tmp_path, reference=right, **FEW)
    names = {field: json.dumps(tests) for field, tests in FEW.items()}
    assert loaded(tmp_path, reference=right, **names).checks == task.checks
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, "calc-1.0")
    packed = loaded(tmp_path, reference=right, tree="tree.tar.gz", **FEW)
    for one in (task, packed):
        assert exact.task_of(Row(json.loads(json.dumps(exact.row_of(one))), "x, row 1")) == one
        right_, none = judged(one, one.reference, "")
        assert (right_.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right_.detail


def key_of(task: Task) -> bytes:
    """What a verdict is kept by, as a new process has it."""
    return PreparedTask(task, Limits(), stop_early=False).key("")


@pytest.mark.parametrize("place", ["/", "/proc", "/proc/self/..", "/sys/kernel", "/dev/.", "to"])
def test_a_tree_that_is_the_machine_is_refused_and_not_walked(place: str, tmp_path: Path) -> None:
    (tmp_path / "to").symlink_to("/")
    check = {"tree": str(tmp_path / place), "fail_to_pass": ["t.py::a"], "pass_to_pass": []}
    row = {"format": "assay", "id": "a", "prompt": "", "entry_point": "", "checks": [check]}
    with pytest.raises(DataError, match="the machine"):
        tree_of(RepositoryTests(str(tmp_path / place), ("t.py::a",), ()))
    (execution,) = judge_all([Job(task_from_dict(row), "x")])
    assert (execution.verdict, "the machine" in execution.detail) == ("unjudged", True)


@pytest.mark.long
def test_the_interpreter_of_an_unpacked_image_runs_the_tests(tree: Path, tmp_path: Path) -> None:
    name, image = f"python3.{sys.version_info.minor}", tmp_path / "image"
    library = image / "usr" / "lib" / name
    (image / "usr" / "bin").mkdir(parents=True)
    for link in ("bin", "lib"):
        (image / link).symlink_to(f"usr/{link}")
    shutil.copy(Path(sys.base_prefix) / "bin" / name, image / "bin" / "python")
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__")
    shutil.copytree(Path(os.__file__).parent, library, ignore=left_out)
    (library / "site-packages").mkdir()
    copy_pytest(library / "site-packages")
    (library / "site-packages" / "of_image.py").write_text("import sys\nPREFIX = sys.prefix\n")
    source = f"from of_image import PREFIX\n\nassert PREFIX == {str(image)!r}\n{RIGHT}"
    task = calc_task(tree, roots=(str(image),))
    right, without = judged(task, as_diff(tree, source), as_diff(tree, SOURCE))
    assert right.verdict is Verdict.PASS, right.detail
    assert without.verdict is Verdict.WRONG


def test_a_verdict_is_not_kept_for_another_tree_or_other_packages(tmp_path: Path) -> None:
    tree, packages = write_tree(tmp_path / "tree"), tmp_path / "venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    task = calc_task(tree, roots=(str(tmp_path / "venv"),))
    keys = [key_of(task)]
    for path in (tree / "new", packages / "x-1.dist-info"):
        path.touch()
        assert key_of(task) == key_of(task) not in keys
        keys.append(key_of(task))
    packages.parent.rename(packages.parents[1] / "python3.12")  # another Python, same packages
    assert key_of(task) not in keys


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tree": "none"}, "'tree' is 'none', but there is no "),
        ({"fail_to_pass": "x"}, "'fail_to_pass' is no list"),
        ({"seconds": 0}, "'seconds' is 0; make it a number above 0"),
        ({"environment": {"A": 1}}, "'environment' must have texts as values"),
    ],
)
def test_a_row_that_is_no_task_is_refused(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    write_tree(tmp_path / "tree")
    with pytest.raises(DataError, match=why):
        loaded(tmp_path, **fields)


def test_a_task_whose_tests_all_pass_before_is_refused(tree: Path) -> None:
    task = calc_task(tree, fail_to_pass=())
    (refused,) = judged(task, "")
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


@pytest.mark.parametrize(
    ("source", "every", "share", "fixes"),
    [
        (RIGHT, 1, 1, 1),
        pytest.param(SOURCE, 0, 0.5, 0, marks=pytest.mark.long),
        (HALF, 0, 4 / 6, 0.2),
        pytest.param(BROKEN, 0, 4 / 6, 0, marks=pytest.mark.long),
    ],
)
def test_rewards_pay_for_all_for_a_share_or_for_some_repairs(
    tree: Path, source: str, every: float, share: float, fixes: float
) -> None:
    task = calc_task(tree)
    (execution,) = judged(task, as_diff(tree, source))
    completion = Completion("", (), (), "stop", ())
    for forgeable, paid in ((True, 0), (False, 1)):
        turn = Turn((), completion, execution=replace(execution, forgeable=forgeable))
        rollout = Rollout(task, (turn,), None)
        assert reward_of_tests(rollout) == every * paid
        assert reward_of_tests(rollout, mode="fraction") == pytest.approx(share * paid)
        assert reward_of_tests(rollout, mode="fixes") == fixes * paid


@pytest.mark.parametrize(
    "words", [pytest.param(["--copies"], marks=pytest.mark.long), ["--symlinks"]]
)
def test_an_environment_of_copies_or_links_runs_the_tests(tmp_path: Path, words: list[str]) -> None:
    tree, home = write_tree(tmp_path / "tree"), tmp_path / "venv"
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", *words, home], check=True)
    copy_pytest(next(home.glob("lib/python3*/site-packages")))
    (right,) = judged(calc_task(tree, roots=(str(home),), **FEW), as_diff(tree, RIGHT))
    assert right.verdict is Verdict.PASS, right.detail


@pytest.mark.parametrize(
    "words", [["--copies"], pytest.param(["--symlinks"], marks=pytest.mark.long)]
)
def test_assay_in_an_environment_of_copies_judges_without_one_of_the_tasks(
    tmp_path: Path, words: list[str]
) -> None:
    tree, home = write_tree(tmp_path / "tree"), tmp_path / "venv"
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", *words, home], check=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "all.pth").write_text(
        "\n".join(filter(None, [str(Path(__file__).parents[2]), *sys.path]))
    )
    code = (
        "import sys; from pathlib import Path; from assay.judge import Job, judge_all\n"
        "from tests.repositories import calc_task\n"
        "task = calc_task(Path(sys.argv[1])); print(judge_all([Job(task, task.reference)]))"
    )
    command = [str(home / "bin" / "python"), "-c", code, str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Verdict.PASS" in done.stdout, done.stdout + done.stderr[-500:]
