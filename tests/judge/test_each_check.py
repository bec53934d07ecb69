"""A verdict says of each check that fails how and why, not only of the first."""

from __future__ import annotations

from typing import Any

import pytest

from assay.judge import Job
from assay.sandbox.limits import Limits
from assay.types import FAILING, Call, Check, Exchange, Task, Verdict, failing
from tests.judge.opened import judge_all

ASSERTS = tuple(Check(f"assert f({n}) == {n + 1}") for n in range(1, 5))
CALLS = (Call("[1]", "2"), Call("[2]", "9"), Call("[3]", "4"), Call("[4]", "7"))
EXCHANGES = (Exchange("1", "2"), Exchange("2", "9"), Exchange("3", "4"), Exchange("4", "7"))
RAISES = "def f(x):\n    if x == 3: raise ValueError('no')\n    return x + (x != 2)\n"
HANGS = "def f(x):\n    while x == 3: pass\n    return x + 1\n"


@pytest.mark.parametrize(
    ("checks", "program", "expected"),
    [
        (ASSERTS, RAISES, [("2", "wrong", "gives 2"), ("3", "error", "ValueError: no")]),
        (ASSERTS, HANGS, [("3", "timeout", "CPU time")]),
        (CALLS, "def f(x): return x + 1", [("2", "wrong", "gives 3, not 9"),
                                           ("4", "wrong", "gives 5, not 7")]),
        (EXCHANGES, "print(int(input()) + 1)", [("2", "wrong", "line 1 is '3', not '9'"),
                                                ("4", "wrong", "line 1 is '5', not '7'")]),
        (CALLS[:1], "def f(x): return x + 1", []),
    ],
)  # fmt: skip
def test_each_check_that_fails_is_named_by_its_number_with_how_and_why(
    checks: Any, program: str, expected: list[tuple[str, str, str]]
) -> None:
    task = Task(id="each", prompt="", checks=checks, entry_point="f")
    (execution,) = judge_all([Job(task, program)], Limits(cpu_seconds=0.3), stop_early=False)
    found = [(test.name, test.outcome) for test in execution.tests]
    assert found == [(name, outcome) for name, outcome, _ in expected]
    for test, (_, _, detail) in zip(execution.tests, expected, strict=True):
        assert detail in test.detail


def test_calls_in_another_language_are_named_too() -> None:
    task = Task(id="js", prompt="", checks=CALLS, entry_point="f", language="javascript")
    (execution,) = judge_all([Job(task, "function f(x) { return x + 1; }")], stop_early=False)
    if execution.verdict is Verdict.UNJUDGED:
        pytest.skip("node is not installed")
    assert [(test.name, test.outcome) for test in execution.tests] == [
        ("2", "wrong"),
        ("4", "wrong"),
    ]


def test_of_many_failures_the_first_are_kept_and_escaped() -> None:
    tests = failing(dict.fromkeys(range(1000), ("wrong", "\x1b[31m")))
    assert (len(tests), tests[-1].name, tests[0].detail) == (FAILING, "64", "\\x1b[31m")
    assert failing({0: ("held", ""), 1: None, 2: (Verdict.PASS, "")}) == ()
