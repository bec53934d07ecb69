"""What a program changes in place is changed in the test, whatever it is and however it is held."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from assay.judge import Job
from assay.types import Check, Execution, Task, Verdict
from tests.judge.opened import judge_all

IMPORTS = (
    "from collections import Counter, OrderedDict, defaultdict, deque\nfrom array import array"
)
KINDS = {
    "list": ("[1]", "x.append(2)", "[1, 2]"),
    "dict": ("{}", "x['k'] = 1", "{'k': 1}"),
    "set": ("set()", "x.add(3)", "{3}"),
    "bytearray": ("bytearray(b'a')", "x.extend(b'b')", "bytearray(b'ab')"),
    "deque": ("deque([1], maxlen=2)", "x.extend([2, 3])", "deque([2, 3], maxlen=2)"),
    "array": ("array('i', [1])", "x.append(2)", "array('i', [1, 2])"),
    "Counter": ("Counter()", "x.update('aa')", "Counter(a=2)"),
    "OrderedDict": ("OrderedDict(a=1, b=2)", "x.move_to_end('a')", "OrderedDict(b=2, a=1)"),
    "defaultdict": ("defaultdict(list)", "x['a'].append(1)", "{'a': [1]}"),
    "list in list": ("[[1], [2]]", "x[0].append(5)", "[[1, 5], [2]]"),
    "list in dict": ("{'a': [1]}", "x['a'].append(2)", "{'a': [1, 2]}"),
    "dict in list": ("[{'a': 1}]", "x[0]['b'] = 2", "[{'a': 1, 'b': 2}]"),
    "set in dict": ("{'a': set()}", "x['a'].add(1)", "{'a': {1}}"),
    "list in deque": ("deque([[1]])", "x[0][0] = 2", "deque([[2]])"),
    "list in tuple": ("([1],)", "x[0].append(2)", "([1, 2],)"),
    "tuple in list": ("[([1], 'a')]", "x[0][0].append(2)", "[([1, 2], 'a')]"),
    "three deep": ("{'a': [{'b': {1}}]}", "x['a'][0]['b'].add(2)", "{'a': [{'b': {1, 2}}]}"),
    "new in old": ("[[1]]", "x.append([2, [3]])", "[[1], [2, [3]]]"),
}
WAYS = {
    "alone": "{d} = {make}\nf({d})\nassert {d} == {right}",
    "by name": "{d} = {make}\nf(x={d})\nassert {d} == {right}",
    "in a function": "def check(f):\n    d = {make}\n    f(d)\n    assert d == {right}\ncheck(f)",
    "of an object": "class Case: pass\nc = Case()\nc.d = {make}\nf(c.d)\nassert c.d == {right}",
}
HELD = {
    "a part that the test holds": (
        "row = [1]\nf([row, [2]])\nassert row == [1, 9]", "x[0].append(9)"
    ),
    "one part twice": ("g = [[0]] * 3\nf(g)\nassert g == [[7]] * 3", "x[0][0] = 7"),
    "parts that change places": (
        "a, b = [1], [2]\nx = [a, b]\nf(x)\nassert x == [b, a] and a == [1] and b == [2]",
        "x.reverse()",
    ),
    "one object in two calls": (
        "x = []\nf(x)\nx.append(5)\nf(x)\nassert x == [1, 5, 1]", "x.append(1)"
    ),
    "two arguments that are one": (
        "x = [1]\nf(x, x)\nassert x == [1, 2]", "x.append(2); assert y == [1, 2]"
    ),
    "what the program keeps": (
        "x = [1]\nf(x)\nx.append(2)\nassert f(None) == 2",
        "global kept\n    if x is not None: kept = x\n    return len(kept)",
    ),
    "what is changed before an error": (
        "x = [1]\ntry:\n    f(x)\nexcept KeyError:\n    assert x == [1, 2]",
        "x.append(2); raise KeyError",
    ),
    "an array of numpy's": (
        "import numpy as np\nx = np.zeros((2, 2))\nf(x)\nassert x[1][0] == 3", "x[1, 0] = 3"
    ),
}  # fmt: skip


def judged(check: str, program: str) -> list[Execution]:
    """Without a reference, and with the program as its own."""
    setup = f"{IMPORTS}\n"
    jobs = [Job(Task("t", "", (Check(check),), "f", setup=setup, reference=reference), program)
            for reference in (None, program)]  # fmt: skip
    return judge_all(jobs)


def passes(executions: list[Execution]) -> bool:
    return {execution.verdict for execution in executions} == {Verdict.PASS}


@pytest.mark.parametrize(("kind", "way"), itertools.product(KINDS, WAYS))
def test_a_change_in_place_reaches_the_test(kind: str, way: str) -> None:
    make, change, right = KINDS[kind]
    check = WAYS[way].format(d="d", make=make, right=right)
    program = f"{IMPORTS}\ndef f(x):\n    {change}\n"
    executions = judged(check, program)
    assert passes(executions), executions
    unchanged = judge_all([Job(Task("t", "", (Check(check),), "f", setup=IMPORTS),
                               "def f(x): pass")])  # fmt: skip
    assert unchanged[0].verdict is Verdict.WRONG


@pytest.mark.parametrize("name", HELD)
def test_one_object_with_several_names_stays_one(name: str) -> None:
    check, body = HELD[name]
    executions = judged(check, f"def f(x, y=None):\n    {body}\n")
    assert passes(executions), executions


def test_what_the_test_changes_reaches_an_object_that_the_program_keeps() -> None:
    program = """class Stack:
    def __init__(self, items): self.items = items
    def top(self): return self.items[-1]
    def rows(self): return self.items
"""
    check = """row = [1]
s = Stack([row])
row.append(2)
assert s.top() == [1, 2]
s.rows().append([3])
assert s.top() == [3]
s.rows()[0].append(4)
assert row == [1, 2, 4]
"""
    of = Task("t", "", (Check(check),), "Stack", reference=program)
    assert judge_all([Job(of, program)])[0].verdict is Verdict.PASS


FORGERIES: dict[str, Any] = {
    "a number that was never sent": '["value", {"shared": [998]}, [[], [], []]]',
    "a change of what was never sent": '["value", 0, [[[998, 5]], [], []]]',
    "a shared number that is no object": '["value", 0, [[[1, "text"]], [], []]]',
    "an object that holds itself": '["value", 0, [[[1, [{"shared": [1]}]]], [], []]]',
    "no table": '["value", 0, 3]',
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_table_that_no_honest_program_sends_is_forbidden(name: str) -> None:
    forger = f"""import json, sys
def f(x):
    frame = sys._getframe()
    while frame is not None:
        one = frame.f_locals.get("self")
        if type(one).__name__ == "Candidate":
            reply = json.loads('''{FORGERIES[name]}''')
            type(one).reply = lambda self, kind, parts: reply
        frame = frame.f_back
    return 0
"""
    of = Task("t", "", (Check("x = [1]\nf(x)\nassert f(x) == 0"),), "f")
    execution = judge_all([Job(of, forger)])[0]
    assert execution.verdict is Verdict.FORBIDDEN, execution
