"""A test is a table where its reference passes while nothing but data crosses."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from assay.errors import DataError
from assay.judge import Job
from assay.judge.kinds.find import kind_of
from assay.judge.task_code import is_harmless
from assay.tasks import load
from assay.types import Execution, Verdict
from tests.judge.jobs import judged_in_turn, programs_run, task
from tests.judge.opened import judge_all

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
MORE_TABLES = {
    "x = f(1)\nassert x == 1 and f(f(1)) == f(1)": "def f(x): return x",
    "for x in [1]:\n    for y in (3,):\n        assert f(x, y) == 3": "def f(x, y): return x * y",
    "def near(a, b): return abs(a - b) < 1e-6\nassert near(f(3.5), 0.5)": "def f(x): return x - 3",
    "def abs(x): return [x]\nassert abs(f(1)) == [1]": "def f(x): return x",
    "try:\n    f(-1)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n"
    "    assert False": "def f(x): raise ValueError('no')",
    "x = f(1)\nx.append(2)\nassert x == [1, 2] and f(1) == [1]": "def f(x): return [x]",
    "assert -0.0 == f(0) and str(f(0)) == '-0.0'": "def f(x): return -0.0",
    "x = f(1)\nassert x != x": "def f(x): return float('nan')",
    "assert [*f(3)] == [0, 1, 2]": "def f(x): yield from range(x)",
    "while (x := f(1)) < 1: pass\nassert x == 1": "def f(x): return x",
    "assert f(1) == 2\nassert f(1) == 3": "n = [1]\ndef f(x):\n    n[0] += x\n    return n[0]",
}
WITH_CARE = {
    "import copy\nx = [1]\ny = copy.copy(x)\nassert f(x) == 1 and x == y": "def f(x): return 1",
    "from math import *\nassert floor(f(1)) == floor(pi)": "def f(x): return 3.5",
    "assert type(f(1)) == tuple": "def f(x): return (x,)",
}
"""Tests on data too, after which the worker ends."""
HARMFUL = {
    "import cmath as math\nassert math.isclose(f(1), 1)": "",
    "assert f(1).__class__ == int": "",
    "assert '{0.real}'.format(f(1)) == '1'": "",
    "assert eval('1') == f(1)": "",
    "assert f(1)": "import random\nrandom.seed(0)",
    "def h(open): pass\nassert open('a') == f(1)": "",
    "def h(__builtins__): pass\nassert __builtins__ == f(1)": "",
    "def h(_\uff3fbuiltins__): pass\nassert f(1)": "",
    "import math as __builtins__\nassert f(1)": "",
    "try: pass\nexcept ValueError as __builtins__: pass": "",
    "t = type\nassert t('A', (), {}) == f(1)": "",
    "assert type('A', (), {}) == f(1)": "",
    "import math\nmath.pi = 3\nassert f(1)": "",
    "import math\ndel math.pi\nassert f(1)": "",
    "import math\nfor math.pi in (1, 2): assert f(1)": "",
    "from math import *\nassert f(1)": "",
    "from operator import attrgetter as abs\nassert abs('real')(f(1))": "",
    "def h(): yield f(1)\nassert [*h()]": "",
    "class A: x = f(1)": "",
    "match f:\n    case object(gi_frame=x): pass": "",
    "assert (x for x in f(1)).gi_frame": "",
    "import random\nassert f(random.random())": "",
    ">>> f(1)": "",
    "def test_f():\n    '>>> import os'": "",
    f"x = f(1){'+1' * 3000}": "",
}
"""With the setup of each."""


@pytest.mark.parametrize("test", TABLES)
def test_asserts_about_answers_are_a_table_without_a_reference_too(test: str) -> None:
    one = task("f", test)
    right, wrong = judge_all([Job(one, TABLES[test]), Job(one, "def f(*a, **k): return 7.5")])
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert not right.with_objects
    assert wrong.verdict is Verdict.WRONG
    assert "gives 7.5 at `assert" in wrong.detail or ": " in wrong.detail


@pytest.mark.parametrize("test", [*MORE_TABLES, *WITH_CARE])
def test_a_test_runs_on_data_where_that_is_enough_for_its_reference(test: str) -> None:
    program = {**MORE_TABLES, **WITH_CARE}[test]
    one = task("f", test, reference=program)
    right, wrong = judge_all([Job(one, program), Job(one, "def f(*a): return {None}")])
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert wrong.verdict is Verdict.WRONG


@pytest.mark.parametrize("test", HARMFUL)
def test_after_a_test_that_may_change_a_worker_the_worker_ends(test: str) -> None:
    assert not is_harmless([HARMFUL[test], test])


@pytest.mark.parametrize("test", [*TABLES, *MORE_TABLES])
def test_other_tests_leave_the_worker_for_another_program(test: str) -> None:
    assert is_harmless([test])


IDENTITY = "def f(x): return x"


def judged(test: str, program: str) -> Execution:
    (execution,) = judge_all([Job(task("f", test), program)])
    return execution


def test_a_wrong_answer_is_told_with_the_assert_and_its_message() -> None:
    test = "assert f(1) == 1, 'one'\nassert f(2) == 2"
    assert (
        judged(test, "def f(x): return 0").detail
        == "AssertionError: one at `assert f(1) == 1, 'one'`"
    )
    loop = task("f", "for x in (1, 2):\n    y = f(x)\n    assert y == x", reference=IDENTITY)
    (looped,) = judge_all([Job(loop, "def f(x): return 1")])
    assert looped.detail == "AssertionError: gives 1 at `assert y == x`"
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


SORTS = "x = [2, 1]\nassert f(x) is None\nassert x == [1, 2]"


@pytest.mark.parametrize(("test", "program"), [
    (SORTS, "def f(x): x.sort()"),
    ("d = {}\nf(d)\nassert d == {'k': 1}", "def f(d): d['k'] = 1"),
    ("d = {'a': [1]}\nf(d)\nassert d == {'a': [1, 2]}", "def f(d): d['a'].append(2)"),
    ("s = {1}\nf(s)\nassert s == {1, 2}", "def f(s): s.add(2)"),
    ("m = [[1, 2], [3, 4]]\nf(m)\nassert m == [[3, 1], [4, 2]]",
     "def f(m): m[:] = [list(row) for row in zip(*m[::-1])]"),
    ("m = [[1, 2]]\nrow = m[0]\nf(m)\nassert row == [2, 1]", "def f(m): m[0].reverse()"),
    ("from collections import deque\nq = deque([1])\nf(q)\nassert q == deque([2, 1])",
     "def f(q): q.appendleft(2)"),
    ("x = [1]\ny = f(x)\ny.append(2)\nassert x == [1, 2]", "def f(x): return x"),
    ("x = [1]\nassert f(x, x) == [1, 1]", "def f(x, y):\n    y.append(1)\n    return x"),
])  # fmt: skip
@pytest.mark.parametrize("has_reference", [True, False])
def test_what_a_call_does_to_an_argument_is_done_to_the_tests(
    test: str, program: str, has_reference: bool
) -> None:
    one = task("f", test, reference=program if has_reference else None)
    right, wrong = judge_all([Job(one, f"{program}  #"), Job(one, "def f(*a): return 3")])
    assert right.verdict is Verdict.PASS, right
    assert wrong.verdict is Verdict.WRONG, wrong
    assert not (has_reference and right.forgeable)


@pytest.mark.parametrize(("test", "program"), [
    ("assert f(lambda x: x + 1, 1) == 2", "def f(g, x): return g(x)"),
    ("assert f(1)(2) == 3", "def f(x): return lambda y: x + y"),
    ("import math\nassert f(math.sqrt, 4) == 2", "def f(g, x): return g(x)"),
    ("s = f()\ns.append(1)\nassert s.pop() == 1",
     "class S:\n    append = lambda s, x: setattr(s, 'x', x)\n    pop = lambda s: s.x\n"
     "def f(): return S()"),
])  # fmt: skip
@pytest.mark.parametrize("has_reference", [True, False])
def test_a_table_that_needs_objects_runs_with_handles(
    test: str, program: str, has_reference: bool
) -> None:
    one = task("f", test, reference=program if has_reference else None)
    right, again, wrong = judge_all(
        [Job(one, program), Job(one, f"{program}  #"), Job(one, "def f(*a): return 3")]
    )
    assert [right.verdict, again.verdict, wrong.verdict] == ["pass", "pass", "wrong"], wrong


def test_what_the_reference_has_shown_later_programs_get_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = programs_run(monkeypatch)
    reference = "class P:\n    def __init__(s, x): s.x = x\ndef f(x): return P(x)"
    one = task("f", "p = f(3)\nassert p.x == 3", reference=reference)
    jobs = [Job(one, f"{reference}  # {n}") for n in range(3)]
    assert {done.verdict for done in judged_in_turn(*jobs)} == {Verdict.PASS}
    on_data, trials = 1, 3
    assert len(programs) == on_data + trials + len(jobs)


FORGED = "class A:\n    __sub__ = lambda s, o: 0.0\ndef f(x): return A()"


def test_an_object_passes_no_table_of_which_the_reference_answers_with_data() -> None:
    test = "x = f(3.5)\nassert abs(x - 0.5) < 1e-6"
    with_reference = task("f", test, reference="def f(x): return x - 3")
    forged, unknown = judge_all([Job(with_reference, FORGED), Job(task("f", test), FORGED)])
    assert forged.verdict is Verdict.WRONG, forged
    assert unknown.forgeable or not unknown.passed, unknown


POISON = """import math, copy
T = f(0)
C = T("X", (), {"__reduce_ex__": lambda s, p: (lambda: math, (), {"isclose": lambda *a: True})})
copy.copy(C())
assert f(1)"""


def test_a_class_that_makes_classes_ends_the_worker_that_has_had_it() -> None:
    maker = "def f(x): return type"
    poison = task("f", POISON, reference=maker)
    asserts = "import math\nassert math.isclose(f(2.0), 4.0)"
    other = task("f", asserts, reference="def f(x): return x * x")
    jobs = [Job(poison, f"{maker}  # {n}") for n in range(3)]
    *_, wrong = judged_in_turn(*jobs, Job(other, "def f(x): return 3.0"))
    assert wrong.verdict is Verdict.WRONG, wrong


NODE = """class Node:
    def __init__(self, val): self.val, self.next = val, None
    def __repr__(self): return f"{self.val}->{self.next!r}" """


def test_an_answer_that_cannot_be_shown_is_wrong_all_the_same() -> None:
    reference = "def f(n):\n    n.val = 3\n    return n"
    one = task("f", "assert f(Node(1)).val == 3", setup=NODE, reference=reference)
    (circle,) = judge_all([Job(one, "def f(n):\n    n.next = n\n    return n")])
    assert circle.verdict is Verdict.WRONG, circle


@pytest.mark.parametrize("test", ["assert Bag([1, 2]).count(2) == 1", "assert len(Bag([1])) == 1"])
def test_asserts_of_a_class_have_its_instances_without_a_reference_too(test: str) -> None:
    bag = """class Bag:
    def __init__(self, items): self.items = items
    def count(self, x): return self.items.count(x)
    def __len__(self): return len(self.items)"""
    (right,) = judge_all([Job(task("Bag", test), bag)])
    assert right.verdict is Verdict.PASS, right


def test_nearly_all_real_tests_of_functions_leave_their_worker_as_it_was() -> None:
    counts = {"humaneval": 160, "mbpp:all": 971}
    try:
        sets = {name: load(name) for name in counts}
    except DataError as error:
        pytest.skip(str(error))
    codes = {
        name: [[one.setup, *(kind_of(it).code(it)[0] for it in one.checks)] for one in tasks]
        for name, tasks in sets.items()
    }
    assert {name: sum(map(is_harmless, codes[name])) for name in codes} == counts


ARRAYS = {
    "assert f(3).size == 3": "return np.arange(n)",
    "assert f(3).shape == (3,) and f(2).tolist() == [0, 1]": "return np.arange(n)",
    "assert f(3).item() == 3": "return np.int64(n)",
    "x = f(3)\nx += 1\nassert x[0] == 1": "return np.arange(n)",
    "assert f(3)[0, 0] == 0": "return np.zeros((n, n))",
    "assert all(f(3) == [0, 1, 2])": "return np.arange(n)",
    "assert f(3).sum() == 3\nassert f(1).mean() == 0": "return np.arange(n)",
    "try: assert f(3).max() == 2\nexcept Exception as error: raise AssertionError(str(error))":
        "return np.arange(n)",
}  # fmt: skip
"""Tests that do not import numpy, and what a right program answers."""


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
@pytest.mark.parametrize("has_reference", [True, False])
def test_a_test_that_takes_an_answer_for_an_array_gets_one(has_reference: bool) -> None:
    programs = [f"import math, numpy as np\ndef f(n): {body}" for body in ARRAYS.values()]
    tasks = [
        task("f", test, reference=program if has_reference else None)
        for test, program in zip(ARRAYS, programs, strict=True)
    ]
    right = judge_all(
        [Job(one, f"{program}  #") for one, program in zip(tasks, programs, strict=True)]
    )
    longer = "import numpy as np\ndef f(n): return np.ones(n + 1)"
    wrong = judge_all([Job(one, longer) for one in tasks])
    assert [it for it in right if not it.proven] == []
    assert [it for it in wrong if it.verdict is not Verdict.WRONG] == []


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
@pytest.mark.parametrize("has_reference", [True, False])
def test_a_program_that_sorts_its_argument_is_no_worse_where_arrays_are_needed(
    has_reference: bool,
) -> None:
    keeps = "import math, numpy as np\ndef f(x): return np.array(sorted(x))"
    sorts = "import math, numpy as np\ndef f(x):\n    x.sort()\n    return np.array(x)"
    test = "x = [3, 1]\nassert (f(x) == [1, 3]).all()"
    one = task("f", test, reference=keeps if has_reference else None)
    (right,) = judge_all([Job(one, sorts)])
    assert right.proven, right


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
def test_an_array_is_no_number_for_a_test_that_compares_it_with_one() -> None:
    one = task("f", "assert f(1) == 2")
    (boxed,) = judge_all([Job(one, "import numpy as np\ndef f(x): return np.array([x + 1])")])
    assert boxed.verdict is Verdict.WRONG, boxed
