"""A worker takes another job only after code that cannot have changed it, which the task's text
shows before any of it runs.
"""

from __future__ import annotations

import pytest

from assay.errors import DataError
from assay.judge import Job
from assay.judge.task_code import leaves_no_trace, looks_at_identity
from assay.tasks import load
from assay.types import Check, Task, TestFunctions, Verdict
from tests.judge.jobs import judged_in_turn
from tests.tasks import sources


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1) == 2",
        "import math\nfrom typing import List\nassert math.isclose(f(1), 2.0)",
        "def check(candidate):\n    for i in range(3): assert candidate(i) == i\ncheck(f)",
        "x = {}\nx['a'] = [1]\nassert f(x) == 1",
        "def f(xs): return sum(x for x in xs)\nassert f([1]) == 1",
        (
            "def g():\n    try:\n        return f(1)\n    except ValueError as error:\n       "
            " raise KeyError from error"
        ),
        "if __name__ == '__main__':\n    print(f(f'{1:.2f}'))",
        "try: f(1)\nexcept ValueError as error: pass",
        "x: int = 1\nassert f(x)",
        "not Python at all (",
        "from solution import g as h\nimport candidate\ndef test_a():\n    assert h(1) == f(1)",
    ],
)
def test_plain_checks_leave_no_trace(source: str) -> None:
    assert leaves_no_trace(source)


@pytest.mark.parametrize(
    "source",
    [
        "import math\nmath.sqrt = abs",
        "import random\nrandom.seed(1)",
        "import os.path",
        "f.calls = 1",
        "import math\ndel math.pi",
        "setattr(f, 'a', 1)",
        "import math\nvars(math)['pi'] = 3",
        "import math\nmath.__dict__['pi'] = 3",
        "exec('import math; math.pi = 3')",
        "__builtins__['abs'] = len",
        "class A:\n    def g(self): self.x = 1",
        "import typing\ntyping.sys.modules.clear()",
        "from typing import sys",
        "from collections import abc",
        "from math import *",
        "from .math import pi",
        "import os as math",
        "import math as getattr",
        "type('A', (), {})",
        "def f(): pass\nf.__globals__['abs'] = 1",
        "(x for x in ()).gi_frame",
        "'{0.__class__}'.format(1)",
        "if 0:\n    getattr = 1\ngetattr(f, 'a')",
        "def getattr(a, b): pass",
        "lambda eval: eval",
        "try: f()\nexcept ValueError as eval: pass",
        "global eval\neval = eval",
        "match f:\n    case int(real=x): pass",
        "try: 1 / 0\nexcept ZeroDivisionError as e: e.__traceback__.tb_frame",
        "def g(n):\n    globals()['x'] = n",
        "@print\ndef g(): pass",
        # what could act later
        "def g():\n    try:\n        yield\n    finally:\n        while True: pass",
        "g = lambda: (yield)",
        "async def g(): pass",
        "with f: pass",
        "from itertools import groupby",
        "from functools import cmp_to_key",
        "__name__ = 'turtle.x'",
        "def g():\n    global __name__\n    __name__ = 'turtle.x'",
    ],
)
def test_code_that_may_change_the_worker_counts_as_a_trace(source: str) -> None:
    assert not leaves_no_trace(source)


@pytest.mark.parametrize(
    ("source", "looks"),
    [
        ("assert f(x) is x", True),
        ("assert 1 < 2 is not f(x)", True),
        ("assert id(f(x)) == id(x)", True),
        ("t.assertIs(f(x), x)", True),
        ("eval('f(x) is x')", True),
        ("assert ｉｄ(f(x)) == 1", True),  # noqa: RUF001  Python reads it as id
        ("assert f(x) is None", False),
        ("assert f(1) is not True", False),
        ('"""What is a word?"""\nassert f(x) == x  # is it', False),
        ("assert f(", False),
    ],
)
def test_only_code_that_compares_identity_looks_at_it(source: str, looks: bool) -> None:
    assert looks_at_identity(source) is looks


def test_nearly_all_real_tests_leave_no_trace() -> None:
    try:
        tasks = load("humaneval") + load("mbpp:all")
    except DataError as error:
        pytest.skip(str(error))
    plain = [all(map(leaves_no_trace, [task.setup, *sources(task)])) for task in tasks]
    assert sum(plain) > 0.98 * len(tasks)


HOSTILE = """
from assay.judge.kinds import asserts
asserts.run_check = lambda *_, held=asserts.Outcome("held"): held
"""
VICTIM = Task("victim", "", (Check("assert add(1, 2) == 3"),), "add")
WRONG = "def add(a, b): return 0"


@pytest.mark.parametrize("quoted", [False, True])
def test_a_doctest_that_patches_its_worker_changes_no_verdict_of_another_task(quoted: bool) -> None:
    text = "".join(f">>> {line}\n" for line in HOSTILE.strip().splitlines()) + ">>> add(1, 2)\n0\n"
    module = TestFunctions(f'"""\n{text}"""\n' if quoted else text)
    hostile = Task("hostile", "", (module,), "add")
    jobs = [Job(hostile, WRONG), *(Job(VICTIM, f"{WRONG}  # {n} {quoted}") for n in range(6))]
    own, *others = judged_in_turn(*jobs)
    assert own.verdict is Verdict.PASS, own
    assert {execution.verdict for execution in others} == {Verdict.WRONG}


def test_a_setup_that_patches_its_worker_changes_no_verdict_of_another_task() -> None:
    hostile = Task("hostile", "", (Check("assert add(1, 2) == 3"),), "add", setup=HOSTILE)
    jobs = [Job(hostile, WRONG), *(Job(VICTIM, f"{WRONG}  # {n}") for n in range(6))]
    own, *others = judged_in_turn(*jobs)
    assert own.verdict is Verdict.PASS, "the attack works on its own task"
    assert {execution.verdict for execution in others} == {Verdict.WRONG}
