"""A test has data first, and a stand-in for any other object. No verdict rests on what a stand-in
cannot do: a test that had one runs again with the program's objects.
"""

from __future__ import annotations

import textwrap

import pytest

from assay.judge import Job, judge_all
from assay.types import Execution, Verdict
from tests.judge.jobs import task

PLAIN = "class P:\n    def __init__(self, x): self.x = x\n"
EQUAL = PLAIN + "    def __eq__(self, other): return self.x == other.x\n"
HASHED = EQUAL + "    def __hash__(self): return hash(self.x)\n"
FROZEN = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n"
ALL_EQUAL = PLAIN + "    __eq__ = lambda *_: True\n    __hash__ = lambda _: 1\n"


def with_method(method: str, of: str = PLAIN) -> str:
    return of + textwrap.indent(method + "\n", "    ")


ITERATOR = """
class Count:
    def __init__(self, n): self.n, self.i = n, 0
    def __iter__(self): return self
    def peek(self): return self.i
    def __next__(self):
        if self.i == self.n: raise StopIteration
        self.i += 1
        return self.i - 1
def f(n): return Count(n)
"""
RAISING = """
class Bad(ValueError):
    def describe(self): return 'bad'
def f(n): raise Bad('x')
"""


def returning(base: str, value: str, length: str = "len(self)") -> str:
    return (
        "from collections import *\n"
        f"class V({base}):\n    def size(self): return {length}\ndef f(n): return V({value})\n"
    )


ABSENT = {
    "an attribute": ("assert not hasattr(P(1), 'y')", PLAIN, with_method("y = 3")),
    "an attribute with a default": (
        "assert getattr(P(1), 'y', None) is None", PLAIN, with_method("y = 3"),
    ),
    "an operator": (
        "try:\n    P(1) + 1\nexcept TypeError:\n    pass\nelse:\n    raise ValueError",
        PLAIN, with_method("def __add__(self, other): return 1"),
    ),
    "a call": (
        "assert not callable(P(1))", PLAIN, with_method("def __call__(self): return 1"),
    ),
    "iteration": (
        "try:\n    iter(P(1))\nexcept TypeError:\n    pass\nelse:\n    raise ValueError",
        PLAIN, with_method("def __iter__(self): return iter([])"),
    ),
    "a with block": (
        "try:\n    with P(1): pass\nexcept Exception:\n    done = 1\nassert done",
        PLAIN, with_method("def __enter__(self): return 1\ndef __exit__(self, *_): pass"),
    ),
    "assignment": (
        "p = P(1)\ntry:\n    p.x = 2\nexcept AttributeError:\n    done = 1\nassert done",
        FROZEN, PLAIN,
    ),
}  # fmt: skip
"""By what a test expects an object not to do: the test, a right program and a wrong one."""
DIFFERENT = {
    "assignment that works": ("p = P(1)\np.x = 2", PLAIN, FROZEN),
    "unequal objects": ("assert P(1) != P(2)", EQUAL, ALL_EQUAL),
    "objects not in a list": ("assert P(1) not in [P(2)]", EQUAL, ALL_EQUAL),
    "objects in a set": ("assert len({P(1), P(2)}) == 2", HASHED, ALL_EQUAL),
    "a hash": (
        "assert hash(P(1)) != 7", PLAIN, with_method("def __hash__(self): return 7"),
    ),
    "a text": (
        "assert '7' not in str(P(1))",
        with_method("def __str__(self): return '8'"), with_method("def __str__(self): return '7'"),
    ),
}  # fmt: skip
BARE = {
    "a list": ("assert f(3).size() == 3", returning("list", "range(n)")),
    "a dict": ("assert f(3).size() == 1", returning("dict", "a=n")),
    "a set": ("assert f(3).size() == 3", returning("set", "range(n)")),
    "a tuple": ("assert f(3).size() == 3", returning("tuple", "range(n)")),
    "a text": ("assert f(3).size() == 3", returning("str", "'x' * n")),
    "a number": ("assert f(3).size() == 4", returning("int", "n", "self + 1")),
    "a UserDict": ("assert f(3).size() == 1", returning("UserDict", "a=n")),
    "a Counter": ("assert f(3).size() == 1", returning("Counter", "a=n")),
    "a deque": ("assert f(3).size() == 1", returning("deque", "[n]")),
    "a defaultdict": ("assert f(3).size() == 1", returning("defaultdict", "int, a=n")),
    "an iterator": ("it = f(3)\nassert it.peek() == 0 and [*it] == [0, 1, 2]", ITERATOR),
    "an exception": (
        "try:\n    f(3)\nexcept ValueError as error:\n    assert error.describe() == 'bad'", RAISING
    ),
}  # fmt: skip
"""By the data that an object of a class with a method is too: a test of the method, a program."""


def judged(test: str, program: str, reference: str | None) -> Execution:
    entry = "P" if "P(" in test else "f"
    (execution,) = judge_all([Job(task(entry, test, reference=reference), program)])
    return execution


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", [*ABSENT, *DIFFERENT])
def test_a_pass_rests_on_the_object_and_not_on_its_stand_in(name: str, has_reference: bool) -> None:
    test, right, wrong = {**ABSENT, **DIFFERENT}[name]
    reference = right if has_reference else None
    assert judged(test, right, reference).verdict is Verdict.PASS
    failed = judged(test, wrong, reference)
    assert failed.verdict in (Verdict.WRONG, Verdict.ERROR)
    assert failed.with_objects


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", BARE)
def test_a_class_that_is_data_too_has_its_methods(name: str, has_reference: bool) -> None:
    test, program = BARE[name]
    execution = judged(test, program, program if has_reference else None)
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution


@pytest.mark.parametrize(
    "use",
    [
        "import json\nassert json.dumps(P([1]).items()) == '[1]'",
        "import heapq\nx = P([2, 1]).items()\nheapq.heapify(x)\nassert x == [1, 2]",
        "assert [0] + P([1]).items() == [0, 1] and sorted(P([2, 1]).items()) == [1, 2]",
        "x = [0]\nx += P([1]).items()\nassert x == [0, 1] and ''.join(P(['a']).items()) == 'a'",
        "assert isinstance(P([1]).items(), list) and P([1]).items() == [1]",
    ],
)
def test_data_of_a_class_is_data_where_the_test_has_objects(use: str) -> None:
    program = "class Items(list):\n    def size(self): return len(self)\n" + PLAIN
    program = with_method("def items(self): return Items(self.x)", program)
    for reference in (program, None):
        execution = judged(f"{use}\nassert P(3).x == 3", program, reference)
        assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution
        assert execution.with_objects


def test_data_of_a_class_is_compared_as_data_where_that_is_enough() -> None:
    program = "from collections import namedtuple\nP = namedtuple('P', 'x y')\n"
    program += "def f(n): return P(n, 1)"
    for reference in (program, None):
        execution = judged("assert f(3) == (3, 1)", program, reference)
        assert execution.verdict is Verdict.PASS
        assert not execution.with_objects
        assert not execution.forgeable


def test_what_a_program_may_change_comes_after_its_objects() -> None:
    program = "class P:\n    def __init__(self, x): self.x = x; x.append(1)\n"
    program += "    def size(self): return len(self.x)"
    execution = judged("assert P([2]).size() == 2", program, None)
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution


MATCH = "import re\ndef f(x): return re.match('a', x)"
EVEN = (
    "class E:\n    def __init__(self, x): self.x = x\n"
    "    def __bool__(self): return self.x % 2 == 0\n    def __sub__(self, other): return E(1)\n"
    "    def __neg__(self): return self\n    def __getitem__(self, at): return E(0)\n"
    "def f(x): return E(x)"
)
TRUTHS = {
    "a match": ("assert f('ab')\nassert not f('b')", MATCH, "def f(x): return x + '1'"),
    "bool": ("assert bool(f('ab')) is True\nassert bool(f('b')) is False", MATCH, EVEN[:-11]),
    "a class": ("assert f(2) and not f(3)", EVEN, EVEN.replace("== 0", "== 1")),
    "a class with a length": (
        "assert not f(0) and f(1)",
        "class V:\n    def __init__(self, n): self.n = n\n    def __len__(self): return self.n\n"
        "def f(n): return V(n)",
        "class V: pass\ndef f(n): return V()",
    ),
    "an item of a list": ("assert all(f(2))", EVEN + "\ng = f\ndef f(x): return [g(x)]", MATCH),
}
"""Tests of nothing but the truth of an answer: the test, a right program and a wrong one."""


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", TRUTHS)
def test_the_truth_of_an_answer_says_no_more_than_true_or_false(
    name: str, has_reference: bool
) -> None:
    test, right, wrong = TRUTHS[name]
    execution = judged(test, right, right if has_reference else None)
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution
    assert judged(test, wrong, right if has_reference else None).verdict is not Verdict.PASS


@pytest.mark.parametrize(
    "test",
    [
        "assert not f(4) - 4",
        "assert not -f(3)",
        "assert f(4)[3]",
        "x = f(4)\nf(5)\nassert x",
        "x = f(4)\nassert x\nassert x",
    ],
)
def test_the_truth_of_what_came_later_is_the_programs_word(test: str) -> None:
    execution = judged(test, EVEN, None)
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, True), execution


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        ("assert f(1) != f(2)", "class E:\n    __eq__ = lambda *_: True\ndef f(x): return E()"),
        ("assert not hasattr(f(1), 'y')", "class E: y = 1\ndef f(x): return E()"),
    ],
)
def test_a_stand_in_decides_nothing_where_the_reference_answers_data(test: str, wrong: str) -> None:
    execution = judged(test, wrong, "def f(x): return x")
    assert execution.verdict is Verdict.WRONG
    assert execution.with_objects


def test_a_match_passes_where_the_reference_answers_true() -> None:
    execution = judged("assert f('a') and not f('b')", MATCH, "def f(x): return x == 'a'")
    assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution
