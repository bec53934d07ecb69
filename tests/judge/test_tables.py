"""A test is a table where it only looks at what calls of one function answer."""

from __future__ import annotations

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.tables import NoTableError, tables_of
from assay.tasks import load
from assay.types import Check, Execution, Task, Verdict
from tests.judge.jobs import judged_in_turn, task

CHECK = "METADATA = {'a': 1}\n\ndef check(candidate):\n    %s\n    assert True, 'here'\n\ncheck(f)"
TABLES = {
    "assert f([1, 2], k=3) == {'a': (1, 2)}": "def f(x, k): return {'a': (1, 2)}",
    "assert f(2) == 4\nassert f(3) == 9, 'no'": "def f(x): return x * x",
    "assert not f('a')": "def f(x): return ''",
    "assert f(1) is None": "def f(x): pass",
    "assert 3 in f(3)": "def f(n): return range(n + 1)",
    "assert abs(f(3.5) - 0.5) < 1e-6": "def f(x): return x - 3",
    "import math\nassert math.isclose(f(1), 0.1 + 0.2, rel_tol=1e-9)": "def f(x): return 0.3",
    "assert sorted(f([2, 1]), key=lambda it: -it) == [2, 1]": "def f(x): return {1, 2}",
    "assert f('é') == 'É'  # é": "def f(x): return x.upper()",
    "assert (f(1)\n        == 'a'.upper())": "def f(x): return 'A'",
    "assert isinstance(f(1), list) and 1 < 2": "def f(x): return []",
    "assert f(float('inf')) == (1,) * 3, str(f(float('inf')))": "def f(x): return (1, 1, 1)",
    "assert f(str, [1, 'a']) == ['a']": "def f(k, x): return [y for y in x if type(y) is k]",
    CHECK % "assert candidate(1) == 1": "def f(x): return x",
}
PROGRAMS = (
    "x = f(1)\nassert x == 1",
    "assert f(f(1)) == 1",
    "assert f(1) == f(1)",
    "assert f(1) == g(1)",
    "assert f(1) == count",
    "assert f(lambda x: x + 1, 1) == 2",
    "for x in (1, 2): assert f(x) == x",
    "def abs(x): return 1\nassert abs(f(1)) == 1",
    "from operator import *\nassert abs(f(1)) == 1",
    "import cmath as math\nassert math.isclose(f(1), 1)",
    "assert f(1).__class__ == int",
    "assert '{0.real}'.format(f(1)) == '1'",
    "assert eval('1') == f(1)",
    "assert f(1)",
    "assert True",
    "assert f(",
    "assert f(1) == 'f(1)'",
    "def check(candidate):\n    assert candidate(1) == 1\ncheck(g)",
    "ROWS_ = 1\nassert f(1)",
    "with f: pass",
)
SETUPS = {"assert f(1)": "import random\nrandom.seed(0)"}


def why(of: Task) -> str:
    try:
        return "" if tables_of(of) else "no checks"
    except NoTableError as error:
        return str(error)


@pytest.mark.parametrize("test", TABLES)
def test_asserts_about_answers_are_a_table_on_which_a_right_program_passes(test: str) -> None:
    one = task("f", test)
    assert why(one) == ""
    right, wrong = judge_all([Job(one, TABLES[test]), Job(one, "def f(*a, **k): return 7.5")])
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert wrong.verdict is Verdict.WRONG
    assert "gives 7.5 at `assert" in wrong.detail or ": " in wrong.detail


@pytest.mark.parametrize("test", PROGRAMS)
def test_a_test_that_does_more_is_no_table(test: str) -> None:
    assert why(task("f", test, setup=SETUPS.get(test, "")))


@pytest.mark.parametrize("setup", ["from math import *", "abs = len", "def abs(x): return 1"])
def test_a_setup_that_binds_what_a_test_uses_makes_it_no_table(setup: str) -> None:
    assert why(task("f", "assert abs(f(1)) == 1", setup=setup))


def judged(test: str, program: str) -> Execution:
    (execution,) = judge_all([Job(task("f", test), program)])
    return execution


def test_a_wrong_answer_is_told_with_the_assert_and_its_message() -> None:
    test = "assert f(1) == 1, 'one'\nassert f(2) == 2"
    assert (
        judged(test, "def f(x): return 0").detail
        == "AssertionError: one at `assert f(1) == 1, 'one'`"
    )
    late = judged(test, "def f(x): return [1, 5][x - 1]")
    assert late.detail == "AssertionError: gives 5 at `assert f(2) == 2`"
    raising = judged(test, "def f(x): raise KeyError(x)")
    assert (raising.verdict, raising.detail) == (Verdict.ERROR, "KeyError: 1")
    odd = judged("assert abs(f(1) - 1) < 1", "def f(x): return 'a'")
    assert odd.detail.startswith("TypeError: unsupported operand")
    assert odd.detail.endswith("at `assert abs(f(1) - 1) < 1`")


def test_what_a_call_does_to_its_arguments_changes_nothing_in_the_test() -> None:
    test = "assert f([2, 1]) == sorted([2, 1])\nassert f([2, 1]) == [1, 2]"
    assert judged(test, "def f(x):\n    x.sort()\n    return x").verdict is Verdict.PASS
    assert judged(test, "def f(x):\n    x.clear()\n    return x").verdict is Verdict.WRONG


def test_a_worker_takes_another_job_after_tables_alone() -> None:
    seen = "import random\nrandom.numbers = getattr(random, 'numbers', 0) + 1\n"
    code = task("f", f"{seen}assert f(0) == random.numbers")
    jobs = [Job(code, f"def f(x): return 1  # {n}") for n in range(6)]
    assert {one.verdict for one in judged_in_turn(*jobs)} == {Verdict.PASS}


def test_nearly_all_real_tests_of_functions_are_tables() -> None:
    try:
        sets = {name: load(name) for name in ("humaneval", "mbpp:all")}
    except DataError as error:
        pytest.skip(str(error))
    counted = {name: sum(not why(one) for one in tasks) for name, tasks in sets.items()}
    assert counted == {"humaneval": 155, "mbpp:all": 970}


def test_checks_of_other_kinds_are_no_tables() -> None:
    two = Task("t", "", (Check("assert f(1)"), Check("f(1)")), "f")
    assert why(two)
