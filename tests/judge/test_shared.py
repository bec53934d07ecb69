"""What a program changes in place is changed in the test, whatever it is and however it is held."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from assay.judge import Job
from assay.judge.aliases import MOST, Aliases
from assay.judge.judge import settled
from assay.judge.prepared_task import NO_FEATURES, ProxyFeatures
from assay.sandbox.limits import Limits
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


ADDER = "class B:\n    def __init__(self, x): self.x = {}\n    def add(self, y): self.x.append(y)\n"
MINDED = {
    "a list": (
        "x = [3, 1]\nassert f(x) == [1, 3]\nassert x == [3, 1]",
        "def f(x): return sorted(x)", "def f(x):\n    x.sort()\n    return list(x)",
    ),
    "a dict": (
        "d = {'a': [1]}\nf(d)\nassert d == {'a': [1]}",
        "def f(d): return dict(d, b=1)", "def f(d):\n    d['b'] = 1\n    return d",
    ),
    "a part": (
        "d = {'a': [1]}\nf(d)\nassert d == {'a': [1]}",
        "def f(d): return d['a'] + [1]", "def f(d):\n    d['a'] += [1]\n    return d['a']",
    ),
    "what an object holds": (
        "x = [1]\nb = B(x)\nb.add(2)\nassert x == [1]",
        ADDER.format("list(x)"), ADDER.format("x"),
    ),
    "an answer that is the argument": (
        "x = [1]\ny = f(x)\ny.append(2)\nassert x == [1]",
        "def f(x): return list(x)", "def f(x): return x",
    ),
    "one list in two calls": (
        "x = f(1)\nx.append(9)\nassert f(1) == [1]",
        "def f(x): return [x]", "n = [1]\ndef f(x): return n",
    ),
    "a list that grows later": (
        "x = f(1)\nf(2)\nassert x == [1]",
        "def f(x): return [x]", "n = []\ndef f(x):\n    n.append(x)\n    return n",
    ),
    "rows that are one": (
        "g = f(3)\ng[0][0] = 1\nassert g == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]",
        "def f(n): return [[0] * n for _ in range(n)]", "def f(n): return [[0] * n] * n",
    ),
    "values that are one": (
        "g = f('ab')\ng['a'].append(1)\nassert g == {'a': [1], 'b': []}",
        "def f(keys): return {key: [] for key in keys}", "def f(k): return dict.fromkeys(k, [])",
    ),
    "an argument in the answer": (
        "x = [1]\ny = f(x)\nx.append(2)\nassert y == [[1]]",
        "def f(x): return [list(x)]", "def f(x): return [x]",
    ),
    "parts of the argument": (
        "x = [[1]]\ny = f(x)\nx[0].append(2)\nassert y == [[1]]",
        "import copy\ndef f(x): return copy.deepcopy(x)", "def f(x): return list(x)",
    ),
}  # fmt: skip
"""What a test passes or gets, and wants unchanged: the test, a right program and a wrong one."""
HELD_BY_BOTH = {
    "a setting": (
        "get()['a'] = 1\nassert get() == {'a': 1}",
        "get",
        "state = {}\ndef get(): return state",
    ),
    "an answer that is passed back": (
        "cart = new()\nadd(cart, 'a')\nassert everything() == [{'a': 1}]",
        "new",
        "carts = []\ndef new():\n    carts.append({})\n    return carts[-1]\n"
        "def add(cart, what): cart[what] = 1\ndef everything(): return carts",
    ),
    "an answer that is counted": (
        "cart = new()\nadd(cart, 'a')\nassert count() == 1",
        "new",
        "carts = []\ndef new():\n    carts.append({})\n    return carts[-1]\n"
        "def add(cart, what): cart[what] = 1\ndef count(): return sum(map(len, carts))",
    ),
    "a row of an answer": (
        "row = grid()[0]\nrow.append(1)\nassert grid() == [[1]]",
        "grid",
        "g = [[]]\ndef grid(): return g",
    ),
}
"""Tests that rest on one object that both sides have: the test, its entry point, a program."""


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", HELD_BY_BOTH)
def test_an_answer_that_the_program_holds_is_one_object(name: str, has_reference: bool) -> None:
    test, entry, program = HELD_BY_BOTH[name]
    reference = program if has_reference else None
    (execution,) = judge_all(
        [Job(Task("t", "", (Check(test),), entry, reference=reference), program)]
    )
    assert execution.verdict is Verdict.PASS, execution


def test_answers_are_remembered_up_to_a_bound() -> None:
    aliases = Aliases()
    row = [1]
    assert not aliases.add([row])
    assert aliases.has(row)
    assert aliases.add((row, "x"))
    assert not aliases.add(["x" * 10 * MOST, [2]])
    assert not aliases.add([[3]])
    assert not aliases.has(row * 2)


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", MINDED)
def test_a_program_that_changes_what_a_test_wants_unchanged_is_wrong(
    name: str, has_reference: bool
) -> None:
    test, right, wrong = MINDED[name]
    entry = "B" if "B(" in test else "f"
    task = Task("t", "", (Check(test),), entry, reference=right if has_reference else None)
    passing, failing = judge_all([Job(task, right), Job(task, wrong)])
    assert (passing.verdict, passing.forgeable) == (Verdict.PASS, False), passing
    assert failing.verdict is Verdict.WRONG, failing


def test_a_change_that_no_test_minds_passes_unmarked() -> None:
    program = "def f(x):\n    x.sort()\n    return list(x)"
    for reference in (None, program, "def f(x): return sorted(x)"):
        task = Task("t", "", (Check("assert f([3, 1]) == [1, 3]"),), "f", reference=reference)
        (execution,) = judge_all([Job(task, program)])
        assert (execution.verdict, execution.forgeable) == (Verdict.PASS, False), execution


UNENDING = {
    "a loop over what grows": (
        "p = [1]\nfor v in p: f(p, v)\nassert p == [1]",
        "def f(x, v): return x + [v]",
        "def f(x, v): x.append(v)\n",
    ),
    "a program that sees which run it is": (
        "x = [3, 1]\nf(x)\nassert x == [3, 1]",
        "def f(x): return sorted(x)",
        "import sys\ndef f(x):\n    x.sort()\n    if sys._getframe(2).f_locals.get('shares'):\n"
        "        while True: pass\n",
    ),
}
"""Tests that a wrong program passes by values, and that come to no verdict of what it changes."""


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("name", UNENDING)
def test_a_pass_is_open_where_the_run_that_may_refute_it_does_not_end(
    name: str, has_reference: bool
) -> None:
    test, right, wrong = UNENDING[name]
    task = Task("t", "", (Check(test),), "f", reference=right if has_reference else None)
    passing, stopped = judge_all(
        [Job(task, right), Job(task, wrong)], Limits(cpu_seconds=1, wall_seconds=3)
    )
    assert (passing.verdict, passing.forgeable) == (Verdict.PASS, False), passing
    assert stopped.forgeable or stopped.verdict is not Verdict.PASS, stopped


@pytest.mark.parametrize("ends", [Verdict.INFRA, Verdict.TIMEOUT, Verdict.FORBIDDEN])
def test_the_machine_refutes_no_pass_and_confirms_none(ends: Verdict) -> None:
    execution, _ = settle(Execution(Verdict.PASS, changes=("aliases",)), Execution(ends))
    outcome = (execution.verdict, execution.forgeable)
    assert outcome == ((ends, False) if ends is Verdict.INFRA else (Verdict.PASS, True))


@pytest.mark.parametrize("changes", [("arguments",), ("aliases",), ("arguments", "aliases")])
def test_a_program_runs_again_only_where_the_test_has_not_seen_what_it_changed(
    changes: tuple[str, ...],
) -> None:
    passing = Execution(Verdict.PASS, changes=changes)
    assert settle(passing, passing)[1] == 1
    in_place = ProxyFeatures(mutates=True, changes=frozenset(changes))
    assert settle(passing, passing, in_place)[1] == ("aliases" in changes)
    assert settle(passing, passing, replace(in_place, aliases=True))[1] == 0


def settle(
    execution: Execution, exact: Execution, first: ProxyFeatures = NO_FEATURES
) -> tuple[Execution, int]:
    """What is settled after a first execution where all others are as `exact`, and how many."""
    runs = list[ProxyFeatures]()

    async def again(features: ProxyFeatures) -> Execution:
        runs.append(features)
        return exact

    async def needed() -> ProxyFeatures:
        return first

    task = Task("t", "", (Check("pass"),), "f", reference="def f(): pass")
    return asyncio.run(settled(task, first, execution, again, needed)), len(runs)
