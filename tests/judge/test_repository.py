"""Changes of a repository: what passes and what each test's outcome is."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge.canaries import canaries
from assay.judge.kinds.repository_cheats import diff_of
from assay.judge.prepared_task import PreparedTask
from assay.judge.repository_tree import digest_of, packages_of
from assay.judge.verdict import execution_of
from assay.rewards.tests import tests as reward_of_tests
from assay.sandbox.limits import Limits
from assay.tasks import exact
from assay.tasks.jsonl import jsonl
from assay.tasks.rows import Row
from assay.types import Completion, Execution, Rollout, Task, Turn, Verdict
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


def test_each_test_has_a_process_a_time_and_an_outcome(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "tests/test_special.py").write_text(SPECIAL)
    ids = tuple(f"tests/test_special.py::{name}" for name in SPECIAL_OUTCOMES)
    task = calc_task(tree, fail_to_pass=ids, pass_to_pass=(), seconds=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.judge.kinds.repository.TEST_SECONDS", 4.0)
        (one,) = judged(task, task.reference)
    found = {test.name.partition("::")[2]: test.outcome for test in one.tests}
    assert found == SPECIAL_OUTCOMES
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


def test_a_test_that_the_right_change_skips_may_be_skipped(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "tests/test_skips.py").write_text(SKIPS)
    at = "tests/test_skips.py::"
    others = tuple(f"{at}{name}" for name in (
        "test_elsewhere", "test_anywhere", "test_with_the_fault_only"
    ))  # fmt: skip
    task = calc_task(tree, fail_to_pass=(f"{at}test_fixed",), pass_to_pass=others)
    skips = as_diff(
        tree, RIGHT + "\n_add = add\ndef add(a, b):\n    return _add(a, b) - (a == 3)\n"
    )
    right, none, skipping = judged(task, task.reference, "", skips)
    assert (right.verdict, right.passed, right.forgeable) == (Verdict.PASS, 4, True)
    assert [test.outcome for test in right.tests] == ["passed", "xskipped", "passed", "xskipped"]
    assert none.verdict is Verdict.WRONG
    assert (skipping.verdict, skipping.passed) == (Verdict.WRONG, 3)
    assert skipping.detail.startswith(f"{at}test_anywhere: skipped")
    fix = replace(task, checks=(replace(task.checks[0], fail_to_pass=others[:1]),))  # type: ignore[type-var]
    (one,) = judged(fix, task.reference)
    assert one.verdict is Verdict.WRONG, "a test to repair is never skipped"
    without = replace(task, reference=None)
    (one,) = judged(without, task.reference)
    assert (one.verdict, one.detail.partition(": ")[0]) == (Verdict.WRONG, others[2])


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
    ("fields", "why"),
    [
        ({"roots": ("broken",)}, "its interpreter runs no tests: "),
        ({"test_patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"}, "the test patch: "),
    ],
)
def test_a_fault_of_the_task_is_no_failure_of_the_program(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    tree = write_tree(tmp_path / "tree")
    (tmp_path / "broken/bin").mkdir(parents=True)
    (tmp_path / "broken/bin/python").write_text("#!/none\n")
    (tmp_path / "broken/bin/python").chmod(0o755)
    if "roots" in fields:
        fields = {"roots": (str(tmp_path / "broken"),)}
    task = calc_task(tree, **fields)
    (one,) = judged(task, task.reference)
    assert one.verdict is Verdict.INFRA
    assert one.detail.startswith(f"the task's setup fails: {why}"), one.detail


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
        tree, fail_to_pass=(f"{new}::test_new",), pass_to_pass=OTHERS, test_patch=patch
    )
    own = diff_of(tree, {new: "def test_new():\n    pass\n"})
    right, wrong = judged(task, task.reference, own)
    assert (right.verdict, right.passed) == (Verdict.PASS, 4)
    assert (wrong.verdict, wrong.passed) == (Verdict.WRONG, 3)


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


def test_canaries_fail_where_their_tests_pass() -> None:
    source = (
        "class TestA:\n    def test_b(self):\n        self.x = 1\n        assert self.x == 1\n"
        "def test_c():\n    assert 1\ndef test_d():\n    return\n    assert 1\n"
        "def test_e():\n    print(1)\n"
    )
    ids = ["t.py::TestA::test_b", "t.py::test_c", "t.py::test_d", "t.py::test_e", "o.py::x"]
    made = canaries(ids, {"t.py": source}, 9, Random(1))
    assert {canary.original for canary in made} == {"t.py::TestA::test_b", "t.py::test_c"}
    for canary in made:
        names: dict[str, Any] = {}
        exec(compile(ast.parse(source + canary.source), "t", "exec"), names)
        *scopes, name = canary.id.split("::")[1:]
        with pytest.raises(AssertionError):
            getattr(names[scopes[0]](), name)() if scopes else names[name]()


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
    right, none = judged(calc_task(tree, roots=(str(home),)), as_diff(tree, RIGHT), "")
    assert (right.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right.detail


def test_a_row_names_its_tree_beside_its_file(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    right = as_diff(tree, RIGHT)
    task = loaded(tmp_path, reference=right)
    names = {"fail_to_pass": json.dumps(FIXES), "pass_to_pass": json.dumps(OTHERS)}
    assert loaded(tmp_path, reference=right, **names).checks == task.checks
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, "calc-1.0")
    packed = loaded(tmp_path, reference=right, tree="tree.tar.gz")
    for one in (task, packed):
        assert exact.task_of(Row(json.loads(json.dumps(exact.row_of(one))), "x, row 1")) == one
        right_, none = judged(one, one.reference, "")
        assert (right_.verdict, none.verdict) == (Verdict.PASS, Verdict.WRONG), right_.detail


def key_of(task: Task) -> bytes:
    """What a verdict is kept by, as a new process has it."""
    digest_of.cache_clear()
    packages_of.cache_clear()
    return PreparedTask(task, Limits(), stop_early=False).key("")


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
    with pytest.raises(DataError, match="no test fails before the change"):
        judged(task, "")


@pytest.mark.parametrize(
    ("source", "every", "share", "fixes"),
    [(RIGHT, 1, 1, 1), (SOURCE, 0, 0.5, 0), (HALF, 0, 4 / 6, 0.2), (BROKEN, 0, 4 / 6, 0)],
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
