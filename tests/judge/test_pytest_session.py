"""Tests that need pytest's fixtures, marks and hooks are run by pytest itself, in the worker."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from assay.errors import NotInstalledError
from assay.judge import Job
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.test_functions import collect, runs_in_pytest
from assay.judge.worker_messages import PYTEST_SESSION
from assay.types import Cause, Execution, Task, TestFunctions, Verdict
from tests.judge.fixture_modules import CASES, TWICE
from tests.judge.opened import judge_all
from tests.judge.test_test_functions import MODULES

FAILS = (Verdict.WRONG, Verdict.ERROR)


def of(source: str, reference: str | None = None, name: str = "f") -> Task:
    return Task("t", "", (TestFunctions(source),), name, reference=reference)


def judged(source: str, program: str, **others: Any) -> Execution:
    (run,) = judge_all([Job(of(source), program)], **others)
    return run


@pytest.fixture(scope="module")
def executions() -> dict[str, tuple[Execution, Execution]]:
    jobs = []
    for source, right, wrong in CASES.values():
        task = of(source, right, "Stack" if "class Stack" in right else "f")
        jobs += [Job(task, right), Job(task, wrong)]
    runs = judge_all(jobs, stop_early=False)
    return dict(zip(CASES, zip(runs[::2], runs[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_right_program_passes_and_a_wrong_one_fails(
    name: str, executions: dict[str, tuple[Execution, Execution]]
) -> None:
    right, wrong = executions[name]
    assert right.verdict is Verdict.PASS, right
    assert right.passed == right.total > 0
    assert not right.forgeable, right  # nothing of pytest's own is taken for an answer's code
    assert wrong.verdict in FAILS, wrong
    assert wrong.passed < wrong.total


def test_a_module_of_plain_tests_needs_no_pytest() -> None:
    for name, source in MODULES.items():
        assert not runs_in_pytest(source), name
    for name, (source, _, _) in CASES.items():
        usual = ("one of several that are raised", "close numbers in mappings",
                 "parameters with ids", "unittest's hooks, subtests and cleanups")  # fmt: skip
        assert runs_in_pytest(source) is (name not in usual), name


@pytest.mark.parametrize(
    "source",
    [
        "import pytest as pt\n@pt.fixture\ndef x(): return 1\ndef test_a(x): assert f(x) == 2\n",
        "from pytest import fixture\n@fixture\ndef x(): return 1\ndef test_a(x): assert f(x)\n",
        "from pytest import mark\n@mark.xfail\ndef test_a(): assert f(1) == 3\n",
        "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n"
        "        self.skipTest('no') if f(1) == 2 else None\n",
        "class TestA:\n    def setup_class(cls): cls.x = 1\n    def test_a(self): assert f(1)\n",
        "async def test_a(): assert await f(1) == 2\n",
    ],
)
def test_what_a_text_needs_of_pytest_is_seen_by_other_names_too(source: str) -> None:
    assert runs_in_pytest(source)


def test_a_fixture_that_nothing_defines_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="test_a needs the fixture 'mocker', which is not there"):
        collect("def test_a(mocker):\n    assert f(1) == 2\n")
    named = "import pytest\n@pytest.fixture(name='n')\ndef make(): return 1\n"
    assert collect(f"{named}def test_a(n):\n    assert f(n) == 2\n") == ["test_a"]


SKIP = "import pytest\n@pytest.mark.skip(reason='slow')\ndef test_a():\n    assert f(1) == 9\n"
OTHER = "def test_b():\n    assert f(1) == 2\n"


def test_a_skipped_test_is_left_out_of_what_a_program_must_pass() -> None:
    run = judged(SKIP + OTHER, TWICE)
    assert (run.verdict, run.passed, run.total) == (Verdict.PASS, 1, 1)
    assert judged(SKIP + OTHER, "def f(x): return 9").verdict is Verdict.WRONG


@pytest.mark.parametrize(
    "source",
    [
        SKIP,
        "import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert f(1) == 2\n",
        "import pytest\n@pytest.mark.parametrize('x', [])\ndef test_a(x):\n    assert f(x) == 2\n",
        "import pytest\ndef test_a():\n    pytest.skip('no')\n    assert f(1) == 2\n",
        "import pytest\npytestmark = pytest.mark.skip(reason='no')\n" + OTHER,
        "import unittest\n@unittest.skip('no')\nclass A(unittest.TestCase):\n"
        "    def test_a(self):\n        self.assertEqual(f(1), 2)\n",
        "import unittest\nclass A(unittest.TestCase):\n    @unittest.expectedFailure\n"
        "    def test_a(self):\n        self.assertEqual(f(1), 3)\n",
    ],
)
def test_nothing_is_judged_where_every_test_is_skipped_or_expected_to_fail(source: str) -> None:
    assert judged(source, TWICE).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("import pytest\ndef test_a():\n    if f(1) != 2:\n        pytest.skip('odd')\n" + OTHER,
         "count = [0]\ndef f(x):\n    count[0] += 1\n    return 3 if count[0] == 1 else 2\n"),
        ("import pytest\n@pytest.fixture(scope='module')\ndef x():\n    if f(1) != 2:\n"
         "        pytest.skip('odd')\ndef test_a(x):\n    assert f(3) == 6\n"
         "def test_c(x):\n    assert f(3) == 6\n" + OTHER,
         "count = [0]\ndef f(x):\n    count[0] += 1\n    return 3 if count[0] == 1 else 2 * x\n"),
        ("import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n"
         "        if f(1) != 2:\n            self.skipTest('odd')\n" + OTHER,
         "count = [0]\ndef f(x):\n    count[0] += 1\n    return 3 if count[0] == 1 else 2\n"),
        ("import pytest\ndef test_a(request):\n    if f(1) != 2:\n"
         "        request.node.add_marker(pytest.mark.xfail)\n    assert f(2) == 4\n" + OTHER,
         "count = [0]\ndef f(x):\n    count[0] += 1\n    return 3 if count[0] < 3 else 2\n"),
        ("import pytest\ndef test_a():\n    if f(1) != 2:\n        pytest.xfail('odd')\n" + OTHER,
         "count = [0]\ndef f(x):\n    count[0] += 1\n    return 3 if count[0] == 1 else 2\n"),
    ],
)  # fmt: skip
def test_a_program_cannot_have_its_test_skipped(source: str, program: str) -> None:
    run = judged(source, program)
    assert run.verdict is Verdict.WRONG, run
    assert run.passed < run.total


@pytest.mark.parametrize("stop_early", [True, False])
@pytest.mark.parametrize(
    "raised",
    ["KeyboardInterrupt", "SystemExit", "GeneratorExit", "Exception('x')", "StopIteration"],
)
def test_what_a_program_raises_is_its_failure_whatever_pytest_makes_of_it(
    raised: str, stop_early: bool
) -> None:
    source = (
        "import pytest\n@pytest.fixture(scope='module')\ndef answer():\n    return f(4)\n"
        "def test_a(answer):\n    assert answer == 8\ndef test_b(answer):\n    assert answer > 7\n"
    )
    run = judged(source, f"def f(x):\n    raise {raised}\n", stop_early=stop_early)
    assert run.verdict in FAILS, run
    assert run.passed == 0


def test_a_program_for_which_a_test_ends_pytest_has_failed_the_tests_that_are_left() -> None:
    source = "import pytest\n" + "".join(
        f"def test_{n}():\n    if f({n}) != {2 * n}:\n        pytest.exit('no')\n" for n in range(3)
    )
    run = judged(source, "def f(x):\n    return x if x == 1 else 2 * x\n", stop_early=False)
    assert run.verdict in FAILS, run
    assert (run.passed, run.total) == (1, 3)


def test_tests_that_an_answer_parametrizes_prove_nothing_where_it_is_empty() -> None:
    source = (
        "import pytest\n@pytest.mark.parametrize('x', f(1))\ndef test_a(x):\n"
        "    assert f(x) == [2, 2]\ndef test_b(capsys):\n    assert f(2) == [2, 2]\n"
    )
    assert judged(source, "def f(n): return [2] * n").verdict is Verdict.PASS
    empty = "def f(n): return [2] * n if n > 1 else []"
    assert judged(source, empty).verdict is not Verdict.PASS


def test_a_test_that_asks_nothing_is_no_check_whatever_its_fixtures_are() -> None:
    source = "def test_a(capsys):\n    assert f(1) == 2\ndef test_b(capsys):\n    pass\n"
    run = judged(source, TWICE, stop_early=False)
    assert (run.verdict, run.cause) == (Verdict.UNJUDGED, Cause.TEST)


def test_a_program_that_dies_in_one_test_has_passed_those_before() -> None:
    source = "".join(f"def test_{n}(capsys):\n    assert f({n}) == {n}\n" for n in range(4))
    deadly = "import os\ndef f(x): return os._exit(0) if x == 2 else x"
    run = judged(source, deadly, stop_early=False)
    assert (run.verdict, run.passed, run.total) == (Verdict.ERROR, 2, 4)


def test_a_detail_names_the_test_and_shows_its_line() -> None:
    source = "def test_a(capsys):\n    assert f(1) == 2\n"
    run = judged(source, "def f(x): return 5")
    assert run.detail == "test_a: AssertionError: gives 5 at `assert f(1) == 2`"


@pytest.mark.parametrize(
    ("test", "answer"),
    [
        ("def test_a(request):\n    assert request.getfixturevalue(f(2)) == 4\n", "expected"),
        ("class Box:\n    left = 1\ndef test_a(monkeypatch):\n"
         "    monkeypatch.setattr(Box, f(2), 7)\n    assert 7 in Box.__dict__.values()\n", "left"),
        ("import math\ndef test_a(monkeypatch):\n    monkeypatch.setattr(f(2), 7)\n"
         "    assert 7 in math.__dict__.values()\n", "math.pi"),
        ("class Box:\n    left = 1\ndef test_a(monkeypatch):\n"
         "    monkeypatch.delattr(Box, f(2))\n    assert 1 not in Box.__dict__.values()\n", "left"),
        ("def test_a():\n    assert pytest.importorskip(f(2)).__name__ == 'ca' + 'lendar'\n",
         "calendar"),
    ],
)  # fmt: skip
def test_what_an_answer_names_to_pytest_marks_the_pass_as_forgeable(test: str, answer: str) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef expected():\n    return 4\n"
    run = judged(f"{fixture}{test}", f"def f(x): return {answer!r}")
    assert (run.verdict, run.forgeable) == (Verdict.PASS, True), run


def test_a_condition_that_an_answer_may_be_marks_the_pass_as_forgeable() -> None:
    source = (
        "import pytest\n@pytest.mark.skipif(f(1), reason='x')\n"
        f"def test_a():\n    assert f(2) == 4\n{OTHER}"
    )
    program = "def f(x): return '__import__(\"os\").getpid() < 0' if x == 1 else 2 * x"
    run = judged(source, program)
    assert run.forgeable or run.verdict is not Verdict.PASS
    literal = "".join(
        f"import pytest\n@pytest.mark.skipif('1 == 2', reason='x')\n"
        f"def test_{n}():\n    assert f({n}) == {2 * n}\n"
        for n in range(2)
    )
    assert not judged(literal, TWICE).forgeable


def test_two_modules_of_a_task_keep_their_fixtures_apart() -> None:
    first = (
        "import pytest\n@pytest.fixture(autouse=True)\ndef broken(request):\n"
        "    assert 'a' in request.node.name\ndef test_a():\n    assert f(1) == 2\n"
    )
    task = Task("t", "", (TestFunctions(first), TestFunctions(OTHER)), "f")
    (run,) = judge_all([Job(task, TWICE)])
    assert (run.verdict, run.passed, run.total) == (Verdict.PASS, 2, 2), run


def test_without_pytest_such_a_task_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    name = "assay.judge.kinds.test_functions.find_spec"
    monkeypatch.setattr(name, lambda it: None if it == "pytest" else find(it))
    check = TestFunctions("def test_a(capsys):\n    assert f(1) == 2\n")
    with pytest.raises(NotInstalledError, match="pip install pytest"):
        kind_of(check).imports(check)  # type: ignore[attr-defined]
    plain = TestFunctions("import pytest\ndef test_a():\n    assert f(1) == pytest.approx(2)\n")
    assert kind_of(plain).imports(plain) == ""  # type: ignore[attr-defined]


def test_what_needs_pytest_names_the_module_that_runs_it() -> None:
    check = TestFunctions("def test_a(capsys):\n    assert f(1) == 2\n")
    assert kind_of(check).imports(check) == PYTEST_SESSION  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\nr = f(1)\n@pytest.mark.skipif(r != 2, reason='no')\n"
        "def test_a():\n    assert r == 2\n",
        "import pytest\nr = f(1)\n@pytest.mark.xfail(r != 2, reason='no')\n"
        "def test_a():\n    assert r == 2\n",
        "import unittest\nr = f(1)\nclass A(unittest.TestCase):\n"
        "    @unittest.skipUnless(r == 2, 'no')\n    def test_a(self):\n"
        "        self.assertEqual(f(1), 2)\n",
    ],
)
def test_a_program_whose_answer_skips_a_test_is_wrong(source: str) -> None:
    assert judged(source, TWICE).verdict is Verdict.PASS
    assert judged(source, "def f(x): return 7").verdict is Verdict.WRONG


BY_ANSWERS = {
    "a skip by a text": (
        "@pytest.fixture\n"
        "def z(): return 1\n"
        "@pytest.mark.skipif('f(1) is None', reason='x')\n"
        "def test_a(z): assert f(1)==2\n"
        "def test_b(): assert f(5)==10\n",
        "def f(x): return None if x==1 else 10",
    ),
    "an expected failure by a text": (
        "@pytest.fixture\n"
        "def z(): return 1\n"
        "@pytest.mark.xfail('f(1) != 2')\n"
        "def test_a(z): assert f(1)==2\n"
        "def test_b(): assert f(5)==10\n",
        "def f(x): return None if x==1 else 10",
    ),
    "cases that a hook makes": (
        "def pytest_generate_tests(metafunc):\n"
        "    if 'v' in metafunc.fixturenames: metafunc.parametrize('v', [f(1)] if f(1) else [])\n"
        "def test_a(v): assert v==2\n"
        "def test_b(): assert f(5)==10\n",
        "def f(x): return None if x==1 else 10",
    ),
    "a case that a hook makes": (
        "def pytest_generate_tests(metafunc):\n"
        "    metafunc.parametrize('v', [f(1)])\n"
        "def test_a(v): assert v==2\n",
        "def f(x): return 3",
    ),
    "a skip of an expected failure": (
        "@pytest.fixture\n"
        "def z(): return 1\n"
        "@pytest.mark.xfail(False, reason='x')\n"
        "def test_a(z):\n"
        "    try: r=f(1)\n"
        "    except NotImplementedError: pytest.skip()\n"
        "    assert r==2\n"
        "def test_b(): assert f(5)==10\n",
        "def f(x):\n    if x==1: raise NotImplementedError\n    return 10",
    ),
    "no parameter": (
        "@pytest.fixture\n"
        "def z(): return 1\n"
        "@pytest.mark.parametrize('x', [f(1)] if f(1)==2 else [])\n"
        "def test_a(x, z): assert x==2\n",
        "def f(x): return 3",
    ),
    "parameters that are none": (
        "@pytest.fixture\n"
        "def z(): return 1\n"
        "@pytest.mark.parametrize('x', [f(1)] if f(1)==2 else 3)\n"
        "def test_a(x, z): assert x==2\n",
        "def f(x): return 3",
    ),
    "a fixture without parameters": (
        "@pytest.fixture(params=[f(1)] if f(1)==2 else [])\n"
        "def z(request): return request.param\n"
        "def test_a(z): assert z==2\n",
        "def f(x): return 3",
    ),
}
"""Tests that answers skip, mark or make, and a program that would gain by it."""


@pytest.mark.parametrize("reference", [None, TWICE])
@pytest.mark.parametrize("name", BY_ANSWERS)
def test_no_answer_skips_marks_or_makes_the_tests_away(name: str, reference: str | None) -> None:
    source, hostile = BY_ANSWERS[name]
    task = of("import pytest\n" + source, reference)
    right, wrong = judge_all([Job(task, TWICE), Job(task, hostile)])
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False)
    assert wrong.verdict is Verdict.WRONG
