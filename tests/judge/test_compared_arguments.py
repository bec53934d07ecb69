"""What a program changes in place counts as an answer where a test compares it with a literal."""

from __future__ import annotations

import pytest

from assay.judge import Job, judge_all
from assay.judge.compared_arguments import only_compares_arguments
from assay.judge.prepared_task import PreparedTask
from assay.sandbox.limits import Limits
from assay.types import Check, Execution, Task, TestFunctions, Verdict
from tests.judge.jobs import task

LIMITS = Limits(cpu_seconds=2, wall_seconds=5)
SORT = """
def f(xs): xs.sort()
def g(xs): return len(xs)
class C:
    def f(self, xs): xs.sort()
"""

COMPARED = {
    "a list": "xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]",
    "the literal first": "xs = [3, 1, 2]\nf(xs)\nassert [1, 2, 3] == xs",
    "beside an answer": "xs = [3, 1]\nassert f(xs) is None and xs == [1, 3]",
    "by two calls": "xs = [3, 1]\nf(xs)\nassert g(xs) == 2 and xs == [1, 3]",
    "in a function": "xs = [3, 1]\ndef main():\n    f(xs)\nmain()\nassert xs == [1, 3]",
    "by a method": "xs = [3, 1]\nC().f(xs)\nassert xs == [1, 3]",
    "by a method that answers": "xs = [3, 1]\nassert C().f(xs) is None and xs == [1, 3]",
    "by a keyword": "xs = [3, 1]\nf(xs=xs)\nassert xs == [1, 3]",
}
"""Tests of SORT."""
READ = {
    "its length": "xs = [3, 1]\nf(xs)\nassert g(xs) == len(xs)",
    "its item": "xs = [3, 1]\nf(xs)\nassert g([3, 1]) == xs[0]",
    "a copy of it": "xs = [3, 1]\nf(xs)\nassert xs == sorted(xs)",
    "by another name": "xs = [3, 1]\nys = xs\nf(xs)\nassert g(ys) == len(ys)",
    "in a list of lists": "xs = [3, 1]\nys = [xs]\nf(xs)\nassert g([1, 2]) == len(ys[0])",
    "by a method": "xs = {1: [3, 1]}\nf(xs.get(1))\nassert g([1, 2]) == len(xs.get(1))",
    "of a made dict": "d = dict(a=[3, 1])\nf(d.get('a'))\nassert g([1, 2]) == len(d.get('a'))",
    "by an attribute": (
        "import types\nns = types.SimpleNamespace(a=[3, 1])\nf(ns.a)\nassert g([1]) == len(ns.a)"
    ),
    "by a condition": "xs = [3, 1]\nf(xs)\nif xs == [3, 1]:\n    assert g([1]) == 1",
    "by an expression": "xs = [3, 1]\nf(xs)\nassert g([1]) == 1 if xs == [3, 1] else True",
    "by or": "xs = [3, 1]\nf(xs)\nassert xs == [1, 3] or g([1]) == 2",
    "by a loop": "xs = [3, 1]\nf(xs)\nfor x in xs:\n    assert g([x]) == 1",
    "by a helper of its own": (
        "def same(a, b):\n    return a == b\nxs = [3, 1]\nf(xs)\nassert same(xs, [1, 3])"
    ),
    "by a comprehension": "xs = [3, 1]\nf(xs)\nassert [x for x in xs] == [1, 3]",
    "by map": "xs = [[3, 1]]\nassert list(map(g, xs)) == [2]",
    "by names in a text": "xs = [3, 1]\nf(xs)\nassert eval('xs') == [1, 3]",
    "by all names": "from math import *\nxs = [3, 1]\nf(xs)\nassert fsum(xs) == 4",
    "bound twice": "xs = [3, 1]\nf(xs)\nxs = g(xs)\nassert xs == 2",
    "as its message": "xs = [3, 1]\nf(xs)\nassert g([1]) == 1, xs",
    "with a name": "n = [1, 3]\nxs = [3, 1]\nf(xs)\nassert xs == n",
    "with what is no literal": "xs = [3, 1]\nf(xs)\nassert xs == [1, g([1, 2, 3])]",
    "as unequal": "xs = [3, 1]\nf(xs)\nassert xs != [3, 1]",
    "by an answer's method": "xs = [3, 1]\nassert f(xs).issuperset(xs)",
    "by an answer's equality": "xs = [3, 1]\nassert f(xs).__eq__(xs) == g(xs)",
    "by a text that is an answer": "xs = ['b']\nf(xs)\nassert g(['b']) == s().join(xs)",
    "by another name of an answer": (
        "xs = [3, 1]\na = f(xs)\nassert a == [1, 3]\nh(xs)\nassert g([1, 3]) == a.count(3)"
    ),
    "of an answer's part": "d = m()\nf(d.get('a'))\nassert g('a') == len(d.get('a'))",
    "by a loop that may be empty": "d = m()\nf(d)\nfor v in d.values(): assert g(v) == 1",
    "by a handler": (
        "xs = [3, 1]\nf(xs)\ndef same(): assert xs == [3, 1]\ntry:\n    same()\n"
        "except AssertionError:\n    pass\nelse:\n    assert g([1]) == 1"
    ),
    "by a function whose failure may be dropped": (
        "import asyncio\nxs = [3, 1]\nf(xs)\nasync def same(): assert xs == [3, 1]\n"
        "async def main():\n    asyncio.create_task(same())\nasyncio.run(main())"
    ),
    "by a function that is decorated": (
        "xs = [3, 1]\nf(xs)\n@fails\ndef same(): pass\nsame()\nassert xs == [3, 1]"
    ),
    "in a doctest": "'>>> g([3, 1]) == len(xs)'\nxs = [3, 1]\nf(xs)\nassert xs == [1, 3]",
    "by a name that hides a module": (
        "import calendar\ncalendar = {'a': [3, 1]}\nf(calendar.get('a'))\n"
        "assert g([3, 1]) == len(calendar.get('a'))"
    ),
    "by nobody, for it cannot be parsed": "xs = [3, 1",
}
"""Tests that read what they passed in another way, or rest on it in another way."""


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    jobs = [Job(task("f", test), SORT) for test in COMPARED.values()]
    return dict(zip(COMPARED, judge_all(jobs, LIMITS), strict=True))


@pytest.mark.parametrize("name", COMPARED)
def test_a_change_that_is_compared_with_a_literal_is_no_word_of_the_programs(
    name: str, executions: dict[str, Execution]
) -> None:
    assert only_compares_arguments([COMPARED[name]])
    execution = executions[name]
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution


@pytest.mark.parametrize("name", READ)
def test_a_change_that_is_read_in_another_way_may_decide_a_verdict(name: str) -> None:
    assert not only_compares_arguments([READ[name]])


def test_tests_of_another_kind_decide_too() -> None:
    others = TestFunctions("def test_g():\n    assert g([3, 1]) == 2\n")
    checks = (Check("xs = [3, 1]\nf(xs)\nassert xs == []"), others)
    prepared = PreparedTask(Task("t", "", checks, "f"), LIMITS, stop_early=True)
    assert not prepared.first_features.changes


def test_checks_that_share_their_names_are_looked_at_together() -> None:
    first = "xs = [3, 1]\nf(xs)\nassert xs == [1, 3]"
    assert only_compares_arguments([first, "assert g([1]) == 1"])
    assert not only_compares_arguments([first, "assert g([1]) == len(xs)"])


FORGERIES = {
    "a test's own sum": (
        "xs = [3, 1]\nassert f(xs) == sum(xs)",
        "def f(xs):\n    xs.clear()\n    return 0",
    ),
    "a length": (
        "xs = [3, 1]\nf(xs)\nassert xs == [] and g(2) == len(xs)",
        "def f(xs): xs.clear()\ndef g(n): return 0",
    ),
    "what a setup's function reads": (
        "xs = [3, 1]\nf(xs)\ntotal(xs)\nassert xs == [0]",
        "def f(xs): xs[:] = [0]",
    ),
}
"""Tests whose expected value the program makes, by what it changes."""


@pytest.mark.parametrize("name", FORGERIES)
def test_who_changes_what_is_expected_does_not_pass_unmarked(name: str) -> None:
    test, program = FORGERIES[name]
    setup = "def total(xs): assert f is not None and sum(xs) in (0, 4)"
    (execution,) = judge_all([Job(task("f", test, setup=setup), program)], LIMITS)
    assert execution.verdict is not Verdict.PASS or execution.forgeable, execution


@pytest.mark.parametrize(
    "change", ["xs[:] = [1, 3.0000001]", "xs[:] = [1, '3']", "xs[:] = [Liar(), Liar()]", "pass"]
)
def test_another_value_than_the_literal_does_not_pass_unmarked(change: str) -> None:
    program = f"class Liar:\n    def __eq__(self, other): return True\ndef f(xs): {change}"
    (execution,) = judge_all(
        [Job(task("f", "xs = [3, 1]\nf(xs)\nassert xs == [1, 3]"), program)], LIMITS
    )
    assert execution.verdict is not Verdict.PASS or execution.forgeable, execution
