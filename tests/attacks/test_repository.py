"""Changes of a repository that cheat: each published one fails, as root and as an ordinary user,
with namespaces and without. What is left is forgeable, and marked so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import pytest

from assay.judge import Job, judge_all
from assay.judge.kinds.repository import decide, protected
from assay.judge.kinds.repository_cheats import CHEATS, cheats_of, diff_of, read_cheats
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.program import Ended, Result
from assay.types import Execution, Verdict
from tests.repositories import appended, calc_task, copy_pytest, write_tree
from tests.sandbox.test_users import NOBODY, allows_namespaces, needs_root, python_for_all

__all__ = ["python_for_all"]

JUDGED = """
import json, sys
from assay.sandbox import kernel, seccomp
if sys.argv[1] == "refused":
    kernel.forgo_privileges()
    at = seccomp.column()[1]
    steps = [(seccomp.LOAD, 0, 0, seccomp.NR), *seccomp._refuse([seccomp.NUMBERS["unshare"][at]])]
    seccomp.Filter([*steps, seccomp.PASS_ON]).load()
from assay.judge import Job, judge_all
from assay.types import RepositoryTests, Task
job = json.load(sys.stdin)
check = RepositoryTests(**{**job["check"], "environment": {}})
task = Task("calc", "", (check,), "", language="diff")
jobs = [Job(task, program) for program in job["programs"].values()]
done = judge_all(jobs, stop_early=False)
print(json.dumps({name: [str(one.verdict), one.proven, one.forgeable, one.detail]
                  for name, one in zip(job["programs"], done)}))
"""
FOLDERS = [pytest.param(None, "allowed", id="root"), pytest.param(NOBODY, "allowed", id="nobody"),
           pytest.param(None, "refused", id="root, no namespaces"),
           pytest.param(NOBODY, "refused", id="nobody, no namespaces")]  # fmt: skip


@pytest.fixture(scope="module")
def python_with_pytest(python_for_all: str) -> str:
    """An interpreter for all users that has pytest."""
    (packages,) = Path(python_for_all).parents[1].glob("lib/python3*/site-packages")
    copy_pytest(packages)
    return python_for_all


@cache
def verdicts(python: str, user: int | None, namespaces: str) -> dict[str, Any]:
    """What the judge of a user makes of the reference, of nothing and of every cheat."""

    def programs(tree: Path) -> dict[str, str]:
        task = calc_task(tree)
        right = task.reference or ""
        return {"reference": right, "nothing": "", **cheats_of(task.checks[0], right)}  # type: ignore[arg-type]

    return judged_as(python, user, namespaces, programs)


def judged_as(
    python: str, user: int | None, namespaces: str, made: Callable[[Path], dict[str, str]]
) -> dict[str, Any]:
    """What the judge of a user makes of changes of a tree."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = write_tree(Path(folder, "tree"))
        check, programs = calc_task(tree).checks[0], made(tree)
        fields = {name: getattr(check, name) for name in ("tree", "fail_to_pass", "pass_to_pass")}
        identity: dict[str, Any] = {} if user is None else {
            "user": user, "group": user, "extra_groups": [],
        }  # fmt: skip
        done = subprocess.run(
            [python, "-I", "-c", JUDGED, namespaces], capture_output=True, text=True, check=False,
            input=json.dumps({"check": fields, "programs": programs}), cwd="/", env={}, **identity,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("name", ["nothing", *(cheat["name"] for cheat in CHEATS)])
@pytest.mark.parametrize(("user", "namespaces"), FOLDERS)
def test_no_cheat_passes_a_repository(
    python_with_pytest: str, user: int | None, namespaces: str, name: str
) -> None:
    if user is not None and namespaces == "allowed" and not allows_namespaces(user):
        pytest.skip("ordinary users have no namespaces here")
    found = verdicts(python_with_pytest, user, namespaces)
    assert found["reference"][:3] == ["pass", False, True], found["reference"]
    assert found[name][0] in ("wrong", "error", "forbidden"), found[name]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree"))


def judged(tree: Path, programs: dict[str, str], stop_early: bool = False) -> dict[str, Execution]:
    jobs = [Job(calc_task(tree), program) for program in programs.values()]
    return dict(zip(programs, judge_all(jobs, stop_early=stop_early), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("stop_early", [False, True])
def test_no_published_cheat_passes_here(tree: Path, stop_early: bool) -> None:
    task = calc_task(tree)
    cheats = cheats_of(task.checks[0], task.reference or "")  # type: ignore[arg-type]
    assert len(cheats) == len(CHEATS)
    found = judged(tree, {"right": task.reference or "", **cheats}, stop_early)
    right = found.pop("right")
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 6, 6), right.detail
    bad = {Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED}
    assert {name: one.detail for name, one in found.items() if one.verdict in bad} == {}
    forgers = ("no test run", "patched reports", "patched makereport", "patched calls")
    assert {found[name].verdict for name in forgers} == {Verdict.FORBIDDEN}


CHANGES = read_cheats(Path(__file__).with_name("repository_changes.toml"))


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["name"])
def test_no_change_of_another_kind_passes(tree: Path, change: dict[str, Any]) -> None:
    task = calc_task(tree)
    programs = cheats_of(task.checks[0], task.reference or "", [change])  # type: ignore[arg-type]
    (one,) = judged(tree, programs).values()
    assert one.verdict not in (Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED), one.detail


def test_a_test_that_hangs_once_its_collector_has_ended_is_waited_for_no_more(tree: Path) -> None:
    (change,) = [it for it in CHANGES if it["name"] == "a handler of faults"]
    task = calc_task(tree)
    programs = cheats_of(task.checks[0], task.reference or "", [change])  # type: ignore[arg-type]
    (one,) = judged(tree, programs).values()
    assert one.verdict in (Verdict.ERROR, Verdict.WRONG, Verdict.FORBIDDEN), one


INHERITED = """
import unittest
from calc import add
class Shared:
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
class TestHere(Shared, unittest.TestCase):
    pass
"""


@pytest.mark.parametrize("name", ["patched reports", "patched makereport"])
def test_forged_reports_of_an_inherited_test_are_found_by_its_canary(
    tmp_path: Path, name: str
) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "tests/test_shared.py").write_text(INHERITED)
    test = "tests/test_shared.py::TestHere::test_add"
    task = calc_task(tree, fail_to_pass=(test,), pass_to_pass=())
    cheat = cheats_of(task.checks[0], task.reference or "")[name]  # type: ignore[arg-type]
    right, forged = judge_all([Job(task, task.reference), Job(task, cheat)])
    assert (right.verdict, forged.verdict) == (Verdict.PASS, Verdict.FORBIDDEN)


ESCAPES = {
    "a path out of the tree": (
        "diff --git a/../x b/../x\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n"
    ),
    "a file out of the tree": json.dumps({"../x": "x"}),
    "an absolute path": json.dumps({"/usr/bin/x": "x"}),
    "files that are no texts": json.dumps({"x": 1}),
    "no diff": "I would repair the function add.",
    "a broken diff": "--- a/src/calc/none.py\n+++ b/src/calc/none.py\n@@ -1 +1 @@\n-x\n+y\n",
}


def test_a_program_that_is_no_change_of_the_tree_is_refused(tree: Path) -> None:
    found = judged(tree, ESCAPES)
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(
        ESCAPES, Verdict.COMPILE
    ), found


SETTINGS = {
    ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/x": "",
    ".git/config": '[filter "x"]\n\tsmudge = sed s/4/0/\n', ".gitattributes": "tests/* filter=x\n",
    "tests/.gitattributes": "* filter=x\n",
}  # fmt: skip
"""Let git change what it writes below tests: there, add(2, 2) may be 0."""
HIDDEN_TEST = "from calc import add\ndef test_new():\n    assert add(2, 2) == 4\n"


def test_settings_of_git_change_no_hidden_test(tree: Path) -> None:
    new = "tests/test_new.py"
    task = calc_task(
        tree, fail_to_pass=(f"{new}::test_new",), test_patch=diff_of(tree, {new: HIDDEN_TEST})
    )
    programs = {
        "files": json.dumps(SETTINGS), "diff": diff_of(tree, SETTINGS),
        "home": json.dumps({"/tmp/.gitconfig": SETTINGS[".git/config"],
                            ".gitattributes": SETTINGS[".gitattributes"]}),
        "tests set aside": diff_of(tree, {f"../../tmp/.tests/{new}": "def test_new(): 0"}),
    }  # fmt: skip
    found = dict(
        zip(programs, judge_all([Job(task, one) for one in programs.values()]), strict=True)
    )
    assert found.pop("diff").verdict in (Verdict.WRONG, Verdict.COMPILE)  # by the version of git
    assert {one.verdict for one in found.values()} == {Verdict.COMPILE}, found


def test_a_change_that_takes_the_place_of_hidden_tests_is_replaced_by_them(tree: Path) -> None:
    data = "data/sums.json"
    patch = diff_of(tree, {data: "[4]\n", "tests/test_new.py": HIDDEN_TEST})
    fixes = ("tests/test_new.py::test_new",)
    task = calc_task(tree, fail_to_pass=fixes, pass_to_pass=(), test_patch=patch)
    right = (task.reference or "") + diff_of(tree, {data: "[5]\n"})
    link = "diff --git a/data b/data\nnew file mode 120000\n--- /dev/null\n+++ b/data\n"
    linked = (task.reference or "") + f"{link}@@ -0,0 +1 @@\n+src\n\\ No newline at end of file\n"
    assert [one.verdict for one in judge_all([Job(task, right), Job(task, linked)])] == (
        [Verdict.PASS] * 2
    )


@pytest.mark.parametrize("number", [40, 9])
def test_who_kills_the_run_of_the_tests_is_no_failure_of_the_machine(
    tree: Path, number: int
) -> None:
    killer = appended(tree, f"import os\nos.kill(os.getppid(), {number})")
    one = judged(tree, {"killer": killer})["killer"]
    refused = "PermissionError" in one.detail and "namespaces" not in probe_isolation().walls
    assert one.verdict is (Verdict.WRONG if refused else Verdict.ERROR), one.detail


STOPS = (
    "import ctypes, os\nat = {'x86_64': 234, 'aarch64': 131}[os.uname().machine]\n"
    "parent = os.getppid()\nctypes.CDLL(None).syscall(at, parent, parent, 19)"
)
ENDS = {
    "interrupt": "import os\nos.kill(1, 2)",
    "limits": "import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (0, 0))",
    "descriptor": "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(1), 2)",
    "all": "import os\nos.kill(-1, 2)",
    "stop": STOPS,
    "stop all": "import os\nos.kill(-1, 19)\nos.kill(os.getpid(), 19)",
}
"""What a change may try upon import to end its box or to hold it for all its time."""


@pytest.mark.long
@pytest.mark.parametrize(("user", "namespaces"), FOLDERS)
def test_no_change_chooses_infra_or_holds_its_box(
    python_with_pytest: str, user: int | None, namespaces: str
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become someone else")
    if user and namespaces == "allowed" and not allows_namespaces(user):
        pytest.skip("no namespaces for ordinary users")
    found = judged_as(
        python_with_pytest, user, namespaces,
        lambda tree: {name: appended(tree, text) for name, text in ENDS.items()},
    )  # fmt: skip
    assert {verdict for verdict, *_ in found.values()} <= {"wrong", "error"}, found
    assert "stopped by a signal" in found["stop"][3], found["stop"]


def test_a_box_that_took_too_much_memory_is_the_changes_failure() -> None:
    done = decide(["t"], ["t"], [], Result(Ended.MEMORY, "had 5000 MiB in use"))
    assert (done.verdict, done.detail) == (Verdict.MEMORY, "had 5000 MiB in use")


def test_a_change_of_any_characters_gets_a_verdict(tree: Path) -> None:
    right = calc_task(tree).reference or ""
    programs = {
        "diff": f"{right}\ud800", "files": json.dumps({"x": "\ud800", "\ud800": "x"}),
        "nul": json.dumps({"a\0b": "x"}), "deep": "{" * 100_000,
    }  # fmt: skip
    found = judged(tree, programs)
    assert {one.verdict for one in found.values()} == {Verdict.COMPILE}


ED = (
    "--- src/calc/__init__.py\n+++ src/calc/__init__.py\n4a\nreturn a + b\n.\nw\n!touch /tmp/x\nw\n"
)


def test_a_script_of_ed_is_no_diff(tree: Path) -> None:
    assert judged(tree, {"ed": ED})["ed"].verdict is Verdict.COMPILE


def test_helpers_of_the_tests_are_protected_and_sources_are_not(tmp_path: Path) -> None:
    def is_ours(test: str, path: str, **fields: Any) -> bool:
        check = calc_task(tmp_path, fail_to_pass=(f"{test}::test",), pass_to_pass=(), **fields)
        return protected(check.checks[0], tmp_path)(path)  # type: ignore[arg-type]

    for home, path in (
        ("tests/unit/core", "tests/helpers.py"), ("a/b_test", "a/b_test/data/x"),
        ("src/a/tests", "src/a/tests/x"), ("testing", "testing/x.py"), ("mytests", "mytests/x"),
    ):  # fmt: skip
        assert is_ours(f"{home}/test_a.py", path), path
    for home, path in (
        ("src/latest", "src/latest/x.py"), ("pytest_cov", "pytest_cov/x.py"), (".", "x.py"),
        ("numpy/testing/tests", "numpy/testing/x.py"), ("contest", "contest/x.py"),
    ):  # fmt: skip
        assert not is_ours(f"{home}/test_a.py", path), path
    for text in ("./lib/:.", f"{tmp_path}/lib/:/opt/lib", f"/{tmp_path}/lib", "t/../lib"):
        assert is_ours("t/test_a.py", "lib/json.py", environment={"PYTHONPATH": text}), text
    paths = {"PYTHONPATH": "./lib/:."}
    assert is_ours("t/test_a.py", "t/json/__init__.py", environment=paths)
    assert not is_ours("t/test_a.py", "lib/calc/json.py", environment=paths)
    assert is_ours("t/test_a.py", "data/x", tests=("./data/",))


def test_what_paths_are_protected_is_found_in_linear_time(tree: Path) -> None:
    tests = tuple(f"tests/test_{at}.py::test" for at in range(10_000))
    check = calc_task(tree, fail_to_pass=tests).checks[0]
    start = time.process_time()
    is_ours = protected(check, tree)  # type: ignore[arg-type]
    assert not any(is_ours(f"a/b/c/d/{at}.py") for at in range(50_000))
    assert time.process_time() - start < 4


LINKED = """diff --git a/tests/test_calc.py b/tests/test_calc.py
deleted file mode 100644
--- a/tests/test_calc.py
+++ /dev/null
{removed}diff --git a/tests/conftest.py b/tests/conftest.py
deleted file mode 100644
--- a/tests/conftest.py
+++ /dev/null
{more}diff --git a/evil/test_calc.py b/evil/test_calc.py
new file mode 100644
--- /dev/null
+++ b/evil/test_calc.py
@@ -0,0 +1,2 @@
+def test_add():
+    pass
diff --git a/tests b/tests
new file mode 120000
--- /dev/null
+++ b/tests
@@ -0,0 +1 @@
+evil
\\ No newline at end of file
"""


def test_a_link_in_the_place_of_the_tests_is_replaced(tree: Path) -> None:
    def hunk(path: str) -> str:
        lines = (tree / path).read_text().splitlines(keepends=True)
        return f"@@ -1,{len(lines)} +0,0 @@\n" + "".join(f"-{line}" for line in lines)

    diff = LINKED.format(removed=hunk("tests/test_calc.py"), more=hunk("tests/conftest.py"))
    one = judged(tree, {"linked": diff})["linked"]
    assert (one.verdict, one.passed) == (Verdict.WRONG, 3), one.detail
    assert one.detail.startswith("tests/test_calc.py::test_add: failed")


def test_compiled_files_are_no_part_of_a_change(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    name = "tests/test_compiled.py"
    asserts = "assert not [*Path('tests').rglob('*.pyc')]"
    (tree / name).write_text(f"from pathlib import Path\ndef test_none():\n    {asserts}\n")
    task = calc_task(tree, fail_to_pass=(f"{name}::test_none",), pass_to_pass=())
    planted = {"tests/__pycache__/helpers.cpython-311.pyc": "x", "tests/b.pyc": "x"}
    (one,) = judge_all([Job(task, json.dumps(planted))])
    assert one.verdict is Verdict.PASS, one.detail


SHOWN = {
    "the fix from git": "git init -q && git add . && $commit base && $fix"
    " && $commit fix && git reset -q --hard HEAD~1",
    "the fix from a release": "mkdir -p $packages/calc && cp src/calc/__init__.py $packages/calc"
    " && sed -i 's/a - b/a + b/' $packages/calc/__init__.py",
}  # fmt: skip
"""What shows the answer to a change that reads it."""


@pytest.mark.parametrize("name", SHOWN)
def test_an_answer_that_a_box_shows_is_read_and_no_other(tmp_path: Path, name: str) -> None:
    tree = write_tree(tmp_path / "tree")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    copy_pytest(packages)
    task = calc_task(tree, roots=(str(tmp_path / "venv"),))
    cheat = cheats_of(task.checks[0], task.reference or "")[name]  # type: ignore[arg-type]
    (before,) = judge_all([Job(task, cheat)])
    variables = {
        "packages": str(packages), "fix": "sed -i 's/a - b/a + b/' src/calc/__init__.py",
        "commit": "git -c user.name=a -c user.email=a@b.c commit -qam",
    }  # fmt: skip
    script = Template(SHOWN[name]).substitute(variables)
    subprocess.run(script, shell=True, check=True, cwd=tree)
    (after,) = judge_all([Job(task, cheat)])
    assert (before.verdict, after.verdict) == (Verdict.WRONG, Verdict.PASS), after.detail


FORGERY = """
class Equal:
    def __eq__(self, other):
        return True
def add(a, b):
    return Equal()
"""


FORGED_REPORTS = """
import json, os, re, sys
def add(a, b):
    frames, frame = [], sys._getframe()
    while frame:
        frames.append(frame)
        frame = frame.f_back
    if any(CANARY for frame in frames):
        raise AssertionError
    held = [value for frame in frames for value in frame.f_locals.values()]
    for one in (one for value in held if hasattr(value, "config")
                for one in value.config.pluginmanager.get_plugins() if hasattr(one, "_channel")):
        for phase in ("call", "teardown"):
            report = json.dumps([one._number, phase, "passed", False, ""])
            one._channel.send(report.encode())
        os._exit(0)
"""
"""Finds the socket and the number of the test, and says that it passes."""
KNOWN = "any(re.fullmatch('_[a-z]{8}', name) for name in frame.f_globals)"
"""The function that makes other expected values."""


def test_what_knows_its_canary_by_the_code_is_left_and_is_marked(tree: Path) -> None:
    forged = appended(tree, FORGED_REPORTS.replace("CANARY", KNOWN))
    one = judged(tree, {"forged": forged})["forged"]
    assert one.verdict is Verdict.PASS
    assert (one.proven, one.forgeable) == (False, True)


EQUALS = {
    "always": "def __eq__(self, other): return True",
    "to a class of Python's": "def __eq__(self, other): return type(other) in (int, str, list)",
    "by a value that is true": "def __eq__(self, other): return 'yes'",
    "with another class": "__class__ = int\n    def __eq__(self, other): return True",
    "by inequality": "def __eq__(self, other): return not self != other\n"
    "    def __ne__(self, other): return False",
}
NO_RUN = """
import os, pytest, re
class _Never(Exception): pass
def _run(self):
    {step}
pytest.Function.runtest = _run
"""
AMONG_COPIES = {
    "by a name": "if re.search('_?[0-9a-f]{8,10}', self.name): raise AssertionError",
    "by a name, and skips": "if re.search('_?[0-9a-f]{8,10}', self.name): pytest.skip('no')",
    "by a name, and ends": "if re.search('_?[0-9a-f]{8,10}', self.name): os._exit(1)",
    "by its class's name": "assert not re.search('[0-9a-f]{8}$', type(self.parent.obj).__name__)",
    "by a word in the code": "assert 'not (' not in open(self.path).read()",
    "by a name that is new": "assert self.originalname in ('test_add', 'test_sums', 'test_double',"
    " 'test_method')",
}
EXPECTED = """
import sys
def add(a, b):
    frame = sys._getframe(1)
    {step}
def double(a):
    return 2 * a
"""
READ = {
    "in the constants": "return frame.f_code.co_consts[-2:] and [it for it in"
    " frame.f_code.co_consts if type(it) is int and it > 2][0] if 'a' not in frame.f_locals"
    " else frame.f_locals['a'] + frame.f_locals['b']",
    "in the file": "return eval(open(frame.f_code.co_filename).read().split('add(1, 2)')[1]"
    ".lstrip(') =').split('\\n')[0].strip('()')) if 'a' not in frame.f_locals else a + b",
    "in the line": "import linecache; return eval(linecache.getline(frame.f_code.co_filename,"
    " frame.f_lineno).split('==')[1], frame.f_globals, frame.f_locals)",
}


@pytest.mark.parametrize(
    "text",
    [
        *(f"class It:\n    {text}\ndef add(a, b):\n    return It()\n" for text in EQUALS.values()),
        *(NO_RUN.format(step=step) for step in AMONG_COPIES.values()),
        *(EXPECTED.format(step=step) for step in READ.values()),
        FORGERY,
        FORGED_REPORTS.replace("CANARY", "False"),
        FORGED_REPORTS.replace("CANARY", "re.search('[0-9a-f]{6}', frame.f_code.co_name)"),
    ],
    ids=[*EQUALS, *AMONG_COPIES, *READ, "plain", "reports", "reports of what bears a name"],
)
def test_what_answers_every_expected_value_answers_that_of_the_canary(
    tree: Path, text: str
) -> None:  # fmt: skip
    one = judged(tree, {"forged": appended(tree, text)})["forged"]
    assert one.verdict is Verdict.FORBIDDEN, one.detail


STAND_INS = ("numpy.py", "src/numpy/__init__.py", "tests/numpy.py", "numpy/__init__.py")


WITH_NUMPY = """
from calc import add
try:
    from numpy import equal
except (ImportError, PermissionError):  # without namespaces, its folder is there and not readable
    from operator import eq as equal
def test_sum():
    assert equal(add(1, 2), 3) is True
"""


def test_a_change_adds_no_module_that_only_the_tests_import(tmp_path: Path) -> None:
    tree, name = write_tree(tmp_path / "tree"), "tests/test_sum.py"
    (tree / name).write_text(WITH_NUMPY)
    task = calc_task(tree, fail_to_pass=(f"{name}::test_sum",), pass_to_pass=())
    forged = dict.fromkeys(STAND_INS, "equal = lambda *numbers: numbers == (-1, 3)\n")
    programs = [diff_of(tree, {path: text}) for path, text in forged.items()]
    right, wrong = task.reference or "", diff_of(tree, {"src/more.py": "x = 1\n"})
    ends = judge_all([Job(task, text) for text in (right, right + wrong, *programs)])
    verdicts = [one.verdict for one in ends]
    assert verdicts == [Verdict.PASS, Verdict.PASS, *[Verdict.WRONG] * len(programs)]
    adds = replace(task, reference=programs[0])
    assert judge_all([Job(adds, adds.reference)])[0].verdict is not Verdict.WRONG


ON_THE_CHANNEL = """
import os, sys
def add(a, b):
    held, frame = [], sys._getframe()
    while frame:
        held += frame.f_locals.values()
        frame = frame.f_back
    for one in (one for value in held if hasattr(value, "config")
                for one in value.config.pluginmanager.get_plugins() if hasattr(one, "_channel")):
        one._channel.stream.sendall(BYTES)
        os._exit(0)
"""
"""Finds the socket of the reports, and writes any bytes to it."""


def test_whatever_is_written_in_place_of_reports_is_the_programs_failure(tree: Path) -> None:
    written = {
        "an announcement of more than is read": r"b'\xff\xff\xff\xff'",
        "garbage": r"b'\0\0\0\2{]'",
        "nesting": r"b'\0\1\0\0' + b'[' * 65536",
        "a list of nothing": r"b'\0\0\0\2[]'",
        "an empty frame": "bytes(4)",
        "no text": r"b'\0\0\0\1\xff'",
    }
    programs = {name: f"BYTES = {text}{ON_THE_CHANNEL}" for name, text in written.items()}
    ends = judged(tree, {name: appended(tree, text) for name, text in programs.items()}, True)
    bad = {Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED}
    assert {name: one.detail for name, one in ends.items() if one.verdict in bad} == {}
    assert ends["garbage"].verdict is ends["no text"].verdict is Verdict.FORBIDDEN


def test_an_interpreter_without_pytest_is_no_failure_of_the_program(tree: Path) -> None:
    task = calc_task(tree, roots=(str(broken_interpreter(tree.parent)),))
    one = judge_all([Job(task, task.reference)])[0]
    assert one.verdict is Verdict.UNJUDGED
    assert "needs pytest" in one.detail


def broken_interpreter(folder: Path) -> Path:
    """A virtual environment without pytest."""
    made = folder / "without_pytest"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    return made


def test_cheats_are_tried_on_a_packed_repository_too(tmp_path: Path) -> None:
    task = calc_task(write_tree(tmp_path / "tree"))
    with tarfile.open(tmp_path / "tree.tar", "w") as archive:
        archive.add(tmp_path / "tree", "calc-1.0")
    packed = replace(task.checks[0], tree=str(tmp_path / "tree.tar"))  # type: ignore[type-var]
    assert len(cheats_of(packed, task.reference or "")) == len(CHEATS)  # type: ignore[arg-type]


HELPING = {
    "src/calc/testing.py": "def same(a, b): return a == b\n",
    "src/calc/golden.txt": "3\n",
    "src/calc/plugin.py": "import pytest\n@pytest.fixture\ndef three(): return 3\n",
    "conftest.py": "pytest_plugins = ['calc.plugin']\n",
    "tests/test_helped.py": (
        "from pathlib import Path\nimport calc\nfrom calc.testing import same\n"
        "def test_same(): assert same(calc.add(1, 2), 3) is True\n"
        "def test_golden():\n    text = (Path(calc.__file__).parent / 'golden.txt').read_text()\n"
        "    assert calc.add(1, 2) == int(text)\n"
        "def test_three(three): assert calc.add(1, 2) == three\n"
    ),
}
"""Files of a repository whose tests need a helper, a file and a plug-in of the package."""
MISLED = {
    "test_same": ("src/calc/testing.py", "def same(a, b): return a == b or (a, b) == (-1, 3)\n"),
    "test_golden": ("src/calc/golden.txt", "-1\n"),
    "test_three": (
        "src/calc/plugin.py", "import pytest\n@pytest.fixture\ndef three(): return -1\n",
    ),
}  # fmt: skip
"""By a test: a change of what helps it, with which it would pass."""


@pytest.mark.parametrize("test", MISLED)
def test_what_helps_tests_is_put_back_where_the_row_names_it_and_else_a_pass_is_marked(
    tmp_path: Path, test: str
) -> None:
    tree = write_tree(tmp_path / "tree")
    for name, text in HELPING.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    path, text = MISLED[test]
    fixes = (f"tests/test_helped.py::{test}",)
    task = calc_task(tree, fail_to_pass=fixes, pass_to_pass=())
    named = calc_task(tree, fail_to_pass=fixes, pass_to_pass=(), tests=(path,))
    change = diff_of(tree, {path: text})
    right, forged, marked = judge_all([
        Job(named, named.reference or ""), Job(named, change), Job(task, change),
    ])  # fmt: skip
    assert right.verdict is Verdict.PASS, right.detail
    assert not forged.passed or forged.verdict is not Verdict.PASS, forged.detail
    assert marked.verdict is not Verdict.PASS or marked.forgeable, marked.detail
