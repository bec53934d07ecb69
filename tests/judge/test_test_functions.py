"""Test functions, classes and doctests: each is collected, runs, and counts as a check."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from assay.errors import DataError
from assay.judge import Job
from assay.judge.kinds.test_functions import collect, never_run
from assay.judge.prepared_task import PreparedTask
from assay.sandbox.limits import Limits
from assay.syntax_trees import READ_TEXTS
from assay.tasks import task_from_dict
from assay.types import Check, Execution, Task, TestFunctions, Verdict
from tests.judge.opened import judge_all

TWICE = "def f(x):\n    if x is None: raise ValueError('no number')\n    return 2 * x\n"
MODULES = {
    "functions": "def test_a():\n    assert f(1) == 2\ndef test_b():\n    assert f('a') == 'aa'\n",
    "an import of the program": "from solution import f\ndef test_a():\n    assert f(1) == 2\n"
    "def test_b():\n    assert f(2) == 4\n",
    "a class": "class TestF:\n    def setup_method(self):\n        self.x = 1\n"
    "    def test_a(self):\n        assert f(self.x) == 2\n"
    "    def test_b(self):\n        assert f(3) == 6\n",
    "unittest": "import unittest\nclass Cases(unittest.TestCase):\n"
    "    def setUp(self):\n        self.x = 1\n"
    "    def test_a(self):\n        self.assertEqual(f(self.x), 2)\n"
    "        with self.assertRaises(ValueError):\n            f(None)\n"
    "    def test_b(self):\n        for x in (1, 2):\n            with self.subTest(x=x):\n"
    "                self.assertEqual(f(x), 2 * x)\n"
    "if __name__ == '__main__':\n    unittest.main()\n",
    "an inherited test": "from unittest import TestCase\nclass Base(TestCase):\n    x = 1\n"
    "    def test_a(self):\n        self.assertEqual(f(self.x), 2 * self.x)\n"
    "class Cases(Base):\n    x = 2\n",
    "parameters": "import pytest\n"
    "@pytest.mark.parametrize('x, y', [(1, 2), pytest.param('a', 'aa')])\n"
    "def test_a(x, y):\n    assert f(x) == y\n",
    "parameters of two marks": "import pytest\n@pytest.mark.parametrize('x', [1])\n"
    "@pytest.mark.parametrize('y', (0, 1))\ndef test_a(x, y):\n"
    "    assert f(x + y) == 2 * (x + y)\n",
    "pytest's helpers": "import pytest\ndef test_a():\n"
    "    with pytest.raises(ValueError, match='no num'):\n        f(None)\n"
    "def test_b():\n    assert f(0.1) + 0.1 == pytest.approx(0.3)\n"
    "    assert [f(1)] == pytest.approx([2.0])\n",
    "a doctest and a docstring": ">>> f(1)\n2\n>>> x = f(2)\n>>> x\n4\n",
    "a helper that is named as a test": "def test_help(x):\n    assert f(x) == 2 * x\n"
    "def test_a():\n    test_help(1)\ndef test_b():\n    test_help(2)\n",
    "an answer that two tests use": "X = f(1)\ndef test_a():\n    assert X == 2\n"
    "def test_b():\n    assert X + f(0) == 2\n",
}
COUNTS = dict.fromkeys(MODULES, 2) | {"a doctest and a docstring": 1}
WRONG = "def f(x): return 0"


def of(source: str, name: str = "t") -> Task:
    return Task(name, "", (TestFunctions(source),), "f")


@pytest.fixture(scope="module")
def executions() -> dict[tuple[str, str], Execution]:
    programs = {"right": TWICE, "wrong": WRONG, "none": "def f(x): return None"}
    jobs = {
        (name, kind): Job(of(source), program)
        for name, source in MODULES.items()
        for kind, program in programs.items()
    }
    return dict(zip(jobs, judge_all(list(jobs.values()), stop_early=False), strict=True))


@pytest.mark.parametrize("name", MODULES)
def test_a_right_program_passes_each_test(
    name: str, executions: dict[tuple[str, str], Execution]
) -> None:
    run = executions[name, "right"]
    assert (run.verdict, run.passed, run.total) == (Verdict.PASS, COUNTS[name], COUNTS[name]), run


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("program", ["wrong", "none"])
def test_a_wrong_program_fails_and_the_detail_names_the_test(
    name: str, program: str, executions: dict[tuple[str, str], Execution]
) -> None:
    run = executions[name, program]
    assert run.verdict in (Verdict.WRONG, Verdict.ERROR)
    assert run.passed < run.total == COUNTS[name]
    assert run.detail.startswith(collect(MODULES[name])[0])


def test_the_share_of_tests_that_pass_is_exact() -> None:
    source = "".join(f"def test_{n}():\n    assert f({n}) == {min(n, 3)}\n" for n in range(5))
    (run,) = judge_all([Job(of(source), "def f(x): return x")], stop_early=False)
    assert (run.verdict, run.passed, run.total) == (Verdict.WRONG, 4, 5)
    assert run.detail == "test_4: AssertionError: gives 4 at `assert f(4) == 3`"


NO_PASS = {
    "skipped": "import pytest\n@pytest.mark.skip(reason='slow')\ndef test_a():\n    f(1)\n",
    "skipped plainly": "import pytest\n@pytest.mark.skip\ndef test_a():\n    f(1)\n",
    "skipped on a condition": "import pytest\n@pytest.mark.skipif(True, reason='x')\n"
    "def test_a():\n    f(1)\n",
    "expected to fail": "import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert f(1) == 3\n",
    "skipped in unittest": "import unittest\nclass Cases(unittest.TestCase):\n"
    "    @unittest.skip('slow')\n    def test_a(self):\n        f(1)\n",
    "a test that asks nothing": "def test_a():\n    assert f(1) == 2\ndef test_b():\n    pass\n",
    "no cases": "import pytest\n@pytest.mark.parametrize('x', list())\ndef test_a(x):\n    f(x)\n",
    "a missing module": "import no_such_module\ndef test_a():\n    assert f(1) == 2\n",
    "a module that is no module": "import pytest\npytest.importorskip('no_such_module')\n"
    "def test_a():\n    assert f(1) == 2\n",
    "tests made by code": "def test_a():\n    assert f(1) == 2\n"
    "globals()['test_b'] = lambda: f(1)\n",
    "no test": "def tset_a():\n    assert f(1) == 2\n",
    "a fixture": "def test_a(mocker):\n    assert f(1) == 2\n",
}


@pytest.fixture(scope="module")
def faults() -> dict[str, Execution]:
    jobs = [Job(of(source, name), TWICE) for name, source in NO_PASS.items()]
    return dict(zip(NO_PASS, judge_all(jobs, stop_early=False, skip_refused=True), strict=True))


@pytest.mark.parametrize("name", NO_PASS)
def test_what_proves_nothing_is_the_tasks_fault(name: str, faults: dict[str, Execution]) -> None:
    assert faults[name].verdict is Verdict.UNJUDGED, faults[name]


def test_a_test_that_the_program_makes_skip_does_not_pass() -> None:
    source = "import pytest\ndef test_a():\n    if f(1) != 2:\n        pytest.skip('odd')\n"
    (run,) = judge_all([Job(of(source), WRONG)])
    assert (run.verdict, run.detail) == (
        Verdict.WRONG,
        "test_a: Skipped: odd at `pytest.skip('odd')`",
    )


def test_a_test_that_ends_the_program_leaves_the_others_unpassed_and_counted() -> None:
    source = "".join(f"def test_{n}():\n    assert f({n}) == {n}\n" for n in range(4))
    deadly = "import os\ndef f(x): return os._exit(0) if x == 2 else x"
    (run,) = judge_all([Job(of(source), deadly)], stop_early=False)
    assert (run.verdict, run.passed, run.total) == (Verdict.ERROR, 2, 4)


def row(tests: Any, **others: Any) -> Task:
    return task_from_dict({"tests": tests, "entry_point": "f", **others})


def test_rows_that_define_tests_and_never_call_them_become_test_functions() -> None:
    never = "def test_a():\n    assert f(1) == 2\n"
    guarded = f"{never}if __name__ == '__main__':\n    test_a()\n"
    for source in (never, guarded, MODULES["unittest"], MODULES["parameters"], ">>> f(1)\n2\n"):
        assert row([source]).checks == (TestFunctions(source),)
    docstring = '"""\n>>> f(1)\n2\n"""\n'
    assert row([docstring]).checks == (TestFunctions(docstring),)


def test_rows_that_call_their_tests_stay_checks() -> None:
    called = "def test_a():\n    assert f(1) == 2\ntest_a()\n"
    through = "def test_a():\n    assert f(1) == 2\ndef main():\n    test_a()\nmain()\n"
    passed_on = "def test_all(g):\n    assert g(1) == 2\ntest_all(f)\n"
    for source in (called, through, passed_on, "assert f(1) == 2", "x = [f(1)]"):
        assert row([source]).checks == (Check(source),)
    for check in ("", "def test_x(g):\n    assert g(1) == 2\n"):
        source = f"{check}def check(candidate):\n    {'test_x(candidate)' if check else 'pass'}\n"
        task = task_from_dict({"test": source, "entry_point": "f"})
        assert task.checks == (Check(f"{source}\n\ncheck(f)"),)


def test_a_fixture_is_refused_by_name_where_rows_are_loaded() -> None:
    with pytest.raises(DataError, match="test_a needs the fixture 'mocker', which is not there"):
        row(["def test_a(mocker):\n    assert f(1) == 2\n"])


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def test_a(): pass\nclass TestB:\n    def test_c(self): pass", "test_a TestB::test_c"),
        ("if True:\n    def test_a(): pass", "test_a"),
        ("@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x): pass", "test_a[0] test_a[1]"),
        ("@pytest.mark.parametrize('x', CASES)\ndef test_a(x): pass", "test_a"),
        ("def test_a(): pass\ndef test_a(): pass", "test_a"),
        ("def test_a(): test_help(1)\ndef test_help(x): pass", "test_a"),
        ("def f():\n    '''\n    >>> f()\n    '''", "doctest[0]"),
    ],
)
def test_the_tests_of_a_module_are_counted_from_its_text(source: str, names: str) -> None:
    assert " ".join(collect(source)) == names
    assert never_run(source)


def test_a_long_chain_of_conditions_is_read() -> None:
    chain = "if x: pass\n" + "elif x: pass\n" * 2000
    assert collect(f"{chain}else:\n    def test_a(): pass\ndef test_b(): pass") == [
        "test_a", "test_b"
    ]  # fmt: skip


SQUARE = "".join(
    f"class Test{n}({', '.join(f'Test{base}' for base in range(n))}):\n"
    f"    def test_{n}(self): f({n})\n"
    for n in range(300)
)
MANY_TESTS = {
    "marks": "import pytest\n" + "@pytest.mark.parametrize('x', [1, 2])\n" * 40
    + "def test_a(x): f(x)",
    "marks of a class": "import pytest\n" + "@pytest.mark.parametrize('x', [1, 2])\n" * 40
    + "class TestA:\n    def test_a(self, x): f(x)",
    "many tests of some cases each": "import pytest\n" + "".join(
        f"@pytest.mark.parametrize('x', {[*range(150)]})\ndef test_{n}(x): f(x)\n"
        for n in range(150)
    ),
    "classes that each inherit all others": SQUARE,
    "an outer class": "class TestOuter:\n" + "".join(
        f"    {line}\n" for line in SQUARE.splitlines()
    ),
}  # fmt: skip
"""Short modules that name more tests than anybody could run."""


@pytest.mark.parametrize("module", MANY_TESTS.values(), ids=MANY_TESTS)
def test_a_short_module_that_names_too_many_tests_is_refused(module: str) -> None:
    with pytest.raises(ValueError, match="more than 20,000 tests"):
        collect(module)
    with pytest.raises(DataError, match="more than 20,000 tests"):
        task_from_dict({"prompt": "p", "tests": [module], "entry_point": "f"})


def test_classes_that_inherit_along_many_ways_and_from_themselves_are_read_once() -> None:
    diamonds = "class Test0(Test0):\n    def test_a(self): f(1)\n" + "".join(
        f"class Test{n}(Test{n - 1}, Test{n - 1}, mixins.Test{n - 1}): pass\n" for n in range(1, 60)
    )
    assert collect(diamonds) == [f"Test{n}::test_a" for n in range(60)]


@pytest.mark.parametrize("name", ["functions", "a class", "unittest", "parameters"])
def test_each_text_of_a_task_is_parsed_once_until_it_is_ready(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, parse = Counter[str](), ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: texts.update([text]) or parse(text))
    READ_TEXTS.clear()
    row = {"prompt": "p", "tests": [MODULES[name]], "entry_point": "f", "setup": "import math",
           "reference": TWICE, "stub": "def f(x):\n"}  # fmt: skip
    prepared = PreparedTask(task_from_dict(row), Limits(), False)
    prepared.checked(TWICE, prepared.first_features)
    assert texts[MODULES[name]] == texts["import math"] == 1
    assert set(texts.values()) == {1}


def test_a_text_that_is_no_python_has_no_tests() -> None:
    with pytest.raises(ValueError, match="no valid Python"):
        collect("def test_a(:")
    assert not never_run("def test_a(:")


def test_the_modules_of_a_task_share_its_setup_and_its_names() -> None:
    first, second = "def test_a():\n    assert f(N) == 2\n", "def test_b():\n    assert f(N) > 1\n"
    task = replace(of(first), checks=(TestFunctions(first), TestFunctions(second)), setup="N = 1")
    (run,) = judge_all([Job(task, TWICE)])
    assert (run.verdict, run.passed, run.total) == (Verdict.PASS, 2, 2)
