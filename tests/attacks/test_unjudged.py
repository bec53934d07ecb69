"""No program chooses that it is not judged: whatever a wrong program answers, and however that ends
a test or a checker, it is the program's failure, with a reference and without one.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import pytest

from assay.judge import Job
from assay.sandbox.limits import Limits
from assay.types import (
    AnyCheck,
    Call,
    Cause,
    Check,
    Exchange,
    Execution,
    Task,
    TestFunctions,
    Verdict,
)
from tests.judge.opened import judge_all

LIMITS = Limits(cpu_seconds=0.3, wall_seconds=1, memory_mb=256)
RIGHT = "def f(x): return x + 1\n"
NOT_JUDGED = {Verdict.INFRA, Verdict.UNJUDGED}
SELF = """class S:
    def __getattr__(self, name): return self
    __call__ = __eq__ = __add__ = __sub__ = __getitem__ = __iter__ = __len__ = lambda s, *a: s
    __abs__ = __float__ = __index__ = __bool__ = __hash__ = __next__ = __lt__ = lambda s, *a: s
"""
ANSWERS = {
    "an object": "object()",
    "a module": "__import__('sys')",
    "a match": "__import__('re').match('a', 'a')",
    "an expression": "__import__('re').compile('a')",
    "what answers with itself": "S()",
    "its own object": "T()",
    "its own class": "T",
    "a class of Python's": "int",
    "the class of everything": "object",
    "the class of classes": "type",
    "an exception's class": "ValueError",
    "a function of Python's": "len",
    "itself": "f",
    "a function": "lambda *a: 3",
    "a method": "T().method",
    "a generator": "(x for x in [3])",
    "a coroutine": "g()",
    "a file": "open('/dev/null')",
    "a lock": "__import__('threading').Lock()",
    "a class of sockets": "__import__('socket').SocketType",
    "bytes in a view": "memoryview(b'3')",
    "a frame": "__import__('sys')._getframe()",
    "code": "f.__code__",
    "a property": "property()",
    "a generic class": "list[int]",
    "a namespace": "__import__('types').SimpleNamespace(a=3)",
    "a view of a dict": "__import__('types').MappingProxyType({})",
    "a chain of dicts": "__import__('collections').ChainMap()",
    "a text file in memory": "__import__('io').StringIO('2')",
    "a time zone": "__import__('zoneinfo').ZoneInfo('UTC')",
    "a mock": "__import__('unittest.mock').mock.Mock()",
    "a partial function": "__import__('functools').partial(int)",
    "an object of a false module": "L()",
    "an object with numpy's protocols": "N()",
    "an exception": "ValueError('x')",
    "a list of its own": "type('A', (list,), {})([1])",
    "a list in itself": "T.cycle()",
    "a value of numpy's": "__import__('numpy').float64(3)",
    "an array of objects": "__import__('numpy').array([object()])",
    "an array of records": "__import__('numpy').zeros(2, [('a', 'i4')])",
    "a date of numpy's": "__import__('numpy').datetime64('2020-01-01')",
}
"""What a wrong program answers. None of it is 2."""
HELPERS = f"""{SELF}
class T:
    value = property(lambda s: s)
    def __eq__(self, other): return False
    def method(self): return self
    def cycle(a=[]): a.append(a); return a
class L:
    __module__ = 're'
    def __eq__(self, other): return False
class N:
    def __array_function__(s, *a): return True
    def __array_ufunc__(s, *a, **k): return True
    def __array__(s, *a, **k): return s
async def g(): return 3
"""
TESTS: dict[str, AnyCheck | tuple[AnyCheck, ...]] = {
    "an assert": Check("assert f(1) == 2"),
    "two checks": (Check("r = f(1)"), Check("assert r == 2")),
    "a difference": Check("assert abs(f(1) - 2) < 1e-6"),
    "a type": Check("r = f(1)\nassert isinstance(r, int) and r == 2"),
    "an attribute": Check("assert f(1).real == 2"),
    "a value of an object": Check("assert getattr(f(1), 'value', f(1)) == 2"),
    "a copy": Check("import copy\nassert copy.deepcopy(f(1)) == 2"),
    "json": Check("import json\nassert json.loads(json.dumps(f(1))) == 2"),
    "a text": Check("import re\nassert re.fullmatch('2', str(f(1))) and f(1) == 2"),
    "a file in memory": Check(
        "import io\nout = io.StringIO()\nprint(f(1), file=out)\nassert out.getvalue() == '2\\n'"),
    "a test case": TestFunctions(
        "import unittest\nclass TestF(unittest.TestCase):\n"
        "    def test_f(self): self.assertEqual(f(1), 2)"),
    "a module": TestFunctions("from solution import f\nr = f(1)\ndef test_a(): assert r == 2"),
    "a doctest": TestFunctions(">>> f(1)\n2\n"),
    "a call": Call("[1]", "2"),
    "an array": Check("import numpy as np\nassert np.allclose(f(1), 2)"),
    "an array's test": Check("import numpy as np\nnp.testing.assert_array_equal(f(1), 2)"),
}  # fmt: skip
FEW = ("an assert", "two checks")
ENDS = {
    "exits": "os._exit(0)",
    "aborts": "os.abort()",
    "crashes": "__import__('ctypes').string_at(0)",
    "closes the channel": "os.closerange(3, 99) or time.sleep(0.1)",
    "writes over the report": "os.write(3, b'\\0\\0\\0\\2{]')",
    "writes an empty report": "os.write(3, b'\\0\\0\\0\\3+[]')",
    "announces a report without end": "os.write(3, b'\\xff\\xff\\xff\\xff') and time.sleep(0.1)",
    "exits by an exception": "sys.exit(0)",
    "passes an object": "f(object())",
    "skips": "(_ for _ in ()).throw(__import__('unittest').SkipTest('no'))",
    "takes memory": "[bytes(1 << 24) for _ in range(10**4)]",
}
"""What a test does where the answer is not 2."""
LEADS = {
    "leaves a function": "def go():\n    if f(1) == 2: return\n    f(object())\ngo()\n",
    "leaves a function by a name": (
        "def go(g):\n    match g(1) - 2:\n        case 0: return\n    f(object())\ngo(candidate)\n"
    ),
    "leaves a loop": "for n in [1]:\n    r = f(n)\n    if r == 2: continue\n    f(object())\n",
    "leaves a loop for good": "while True:\n    if f(1) == 2: break\n    f(object())\n",
    "leaves a function by many names": (
        "r0 = f(1)\n"
        + "".join(f"r{n + 1} = r{n}\n" for n in range(1500))
        + "def go():\n    if r1500 == 2: return\n    f(object())\ngo()\n"
    ),
    "leaves out an item": "[f(object()) for n in [1] if f(n) != 2]\n",
}
"""By what a test does where the answer is 2. Where it is not, the test passes an object."""
CHECKERS = {
    "exits": "os._exit(0)",
    "exits by an exception": "sys.exit(0)",
    "aborts": "os.abort()",
    "takes memory": "[bytes(1 << 24) for _ in range(10**4)]",
    "closes its output": "os.closerange(0, 99)",
    "prints what would pass": "print('\\nloaded\\n[true, \"\"]', flush=True) or os._exit(0)",
    "raises what has no text": "(_ for _ in ()).throw(Mute())",
}
MUTE = "class Mute(Exception):\n    def __str__(self): raise self\n"


def judged(
    tests: dict[str, AnyCheck | tuple[AnyCheck, ...]], has_reference: bool
) -> dict[tuple[str, str], Execution]:
    jobs = {}
    for (test, checks), (name, answer) in product(tests.items(), ANSWERS.items()):
        if "numpy" in f"{checks}{answer}" and not find_spec("numpy"):
            continue
        these = checks if isinstance(checks, tuple) else (checks,)
        task = Task("row", "", these, "f", reference=RIGHT if has_reference else None)
        jobs[test, name] = Job(task, f"{HELPERS}def f(x): return {answer}\n")
    return dict(zip(jobs, judge_all([*jobs.values()], LIMITS), strict=True))


def chosen(executions: dict[tuple[str, str], Execution]) -> dict[tuple[str, str], Execution]:
    """Those that are not judged, or pass as if they were right."""
    return {
        at: it
        for at, it in executions.items()
        if it.verdict in NOT_JUDGED or (it.verdict is Verdict.PASS and not it.forgeable)
    }


def test_no_answer_chooses_that_it_is_not_judged() -> None:
    executions = judged({name: TESTS[name] for name in FEW}, has_reference=False)
    assert len(executions) > 70
    assert not chosen(executions)


@pytest.mark.long
@pytest.mark.parametrize("has_reference", [False, True])
def test_no_answer_chooses_so_in_any_kind_of_test(has_reference: bool) -> None:
    assert not chosen(judged(TESTS, has_reference))


@pytest.mark.parametrize("has_reference", [False, True])
def test_no_answer_chooses_so_by_ending_the_test(has_reference: bool) -> None:
    source = "import os, sys, time\nif f(1) != 2: {}\nassert f(1) == 2"
    tasks = [
        Task("row", "", (Check(source.format(end)),), "f",
             reference=RIGHT if has_reference else None)
        for end in ENDS.values()
    ]  # fmt: skip
    wrong = judge_all([Job(task, "def f(x): return 3") for task in tasks], LIMITS)
    right = judge_all([Job(task, f"{RIGHT}# too") for task in tasks], LIMITS)
    ends = dict(zip(ENDS, wrong, strict=True))
    assert {name: it for name, it in ends.items() if it.cause is not Cause.PROGRAM} == {}
    assert Verdict.PASS not in {it.verdict for it in wrong}
    assert {it.verdict for it in right} == {Verdict.PASS}


@pytest.mark.parametrize("has_reference", [False, True])
def test_no_answer_chooses_so_by_where_it_leads_the_test(has_reference: bool) -> None:
    tasks = [
        Task("row", "", (Check(f"candidate = f\n{source}assert f(1) == 2"),), "f",
             reference=RIGHT if has_reference else None)
        for source in LEADS.values()
    ]  # fmt: skip
    wrong = judge_all([Job(task, "def f(x): return 3") for task in tasks], LIMITS)
    right = judge_all([Job(task, f"{RIGHT}# too") for task in tasks], LIMITS)
    leads = dict(zip(LEADS, wrong, strict=True))
    assert {name: it for name, it in leads.items() if it.verdict is not Verdict.WRONG} == {}
    assert {it.verdict for it in right} == {Verdict.PASS}


PASSES_OBJECTS = [
    "for n in f(2): assert f(object())",
    "assert f(1) == [1]\nf(object())",
    "for n in [1, object()]: assert f(n)",
    "class O: skip = False\nfor o in [O(), O()]:\n    if o.skip: continue\n    assert f(o)",
    "def go():\n    for n in f(1): assert n == 1\n    return f(object())\nassert go()",
    "assert all([f(o) for o in [1, object()] if o])",
]
"""Tests that pass an object whatever the program is, some after an answer of its."""


@pytest.mark.parametrize("test", PASSES_OBJECTS)
def test_a_right_program_is_not_wrong_where_its_test_passes_an_object(test: str) -> None:
    (right,) = judge_all([Job(Task("row", "", (Check(test),), "f"), "def f(x): return [1]")])
    assert right.cause is Cause.CARRY, right


PARTIAL = "import functools\ndef add(a, b): return a + b\np = functools.partial(add, 1)\n"


def test_a_test_that_passes_a_partial_function_judges_every_program() -> None:
    tests = {
        "assert f(p) == 3": "def f(g): return g(2)",
        "assert f(p).__name__ == 'add'": "def f(g): return g.func",
        "assert f(p)(2) == 3": "def f(g): return g",
        "assert f(p).real == 1": "def f(g): return g.args[0]",
        "log = []\nf(functools.partial(log.append, 1))\nassert log == [1]": "def f(g): g()",
        "log = []\ndef note(x, y): x.append(y)\nf(functools.partial(note, log))\nassert log == [1]":
            "def f(g): g(1)",
    }  # fmt: skip
    tasks = [Task("row", "", (Check(PARTIAL + test),), "f") for test in tests]
    right = judge_all([Job(*pair) for pair in zip(tasks, tests.values(), strict=True)])
    assert [it for it in right if not it.passed] == []
    wrong = judge_all([Job(task, "def f(g): return None") for task in tasks])
    assert [it for it in wrong if it.verdict is not Verdict.WRONG] == []


@pytest.mark.parametrize("has_reference", [False, True])
def test_no_output_chooses_so_by_ending_its_checker(has_reference: bool) -> None:
    head = f"import os, sys\n{MUTE}def check(given, output, expected):\n    if output != expected: "
    prints = "print(int(input()) + 1)\n"
    row = Task("row", "", (Exchange("1", "2\n"),), "", reference=prints if has_reference else None)
    tasks = [
        replace(row, checker=f"{head}{end}\n    return output == expected")
        for end in CHECKERS.values()
    ]
    wrong = judge_all([Job(task, "print(3)") for task in tasks], LIMITS)
    right = judge_all([Job(task, f"{prints}# too") for task in tasks], LIMITS)
    assert {name: it.verdict for name, it in zip(CHECKERS, wrong, strict=True)} == dict.fromkeys(
        CHECKERS, Verdict.WRONG
    )
    assert {it.verdict for it in right} == {Verdict.PASS}
