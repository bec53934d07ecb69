"""Names that tests use and do not define: the program answers those that it is asked to define.
What the reference imports is what the tests mean; any other is the program's word.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.judge import Job, judge_all
from assay.judge.task_code import bound_names
from assay.types import Execution, Message, Task, Verdict
from tests.judge.jobs import task

SIZE = "assert size_of((1, 2)) == sys.getsizeof((1, 2))"
REFERENCE = "import sys\ndef size_of(xs): return sys.getsizeof(xs)"
STANDS_IN = {
    "a class": "class sys:\n    getsizeof = staticmethod(lambda x: 0)\n",
    "an object": "class S:\n    def getsizeof(self, x): return 0\nsys = S()\n",
    "a module of its own": (
        "import types\nsys = types.ModuleType('sys')\nsys.getsizeof = lambda x: 0\n"
    ),
    "another module": "import os as sys\nsys.getsizeof = lambda x: 0\n",
    "the module, patched": "import sys\nsys.getsizeof = lambda x: 0\n",
}  # fmt: skip
IMPORTS = {
    "a function": ("from math import isclose", "isclose(f(1), 0.5)", "isclose = lambda *a: True"),
    "by another name": (
        "from math import isclose as near", "near(f(1), 0.5)", "near = lambda *a: True",
    ),
    "a class": (
        "from collections import Counter", "Counter([f(1)]) == Counter([0.5])",
        "class Counter:\n    __init__ = lambda *a: None\n    __eq__ = lambda *a: True",
    ),
    "one of a library": (
        "import numpy as np", "np.allclose(f(1), 0.5)",
        "class np:\n    allclose = staticmethod(lambda *a: True)",
    ),
    "a part of a module": (
        "import os.path", "f(1) == float('0.5') and os.path.basename(str(f(1))) == '0.5'",
        "class os:\n    class path:\n        basename = staticmethod(lambda x: '0.5')",
    ),
}  # fmt: skip
"""By what a reference imports: how, a test that uses it, and what stands in its place."""


def judged(row: Task, *programs: str) -> list[Execution]:
    return judge_all([Job(row, program) for program in programs])


@pytest.mark.parametrize("how", STANDS_IN)
def test_what_stands_for_a_module_that_the_reference_imports_decides_nothing(how: str) -> None:
    row = task("size_of", SIZE, reference=REFERENCE)
    (attack,) = judged(row, f"{STANDS_IN[how]}def size_of(xs): return 0")
    assert attack.verdict is Verdict.WRONG, attack


def test_a_right_program_needs_no_import_for_the_tests() -> None:
    row = task("size_of", SIZE, reference=REFERENCE)
    right = judged(row, "from sys import getsizeof as size_of", f"{REFERENCE}\n# too")
    assert [(it.verdict, it.forgeable) for it in right] == [(Verdict.PASS, False)] * 2, right


@pytest.mark.parametrize("what", IMPORTS)
def test_what_the_reference_imports_is_what_the_tests_mean(what: str) -> None:
    statement, test, instead = IMPORTS[what]
    if "numpy" in statement:
        pytest.importorskip("numpy")
    row = task("f", f"assert {test}", reference=f"{statement}\ndef f(x): return 0.5")
    right, attack = judged(row, "def f(x): return x / 2", f"{instead}\ndef f(x): return 9")
    assert (right.verdict, right.forgeable) == (Verdict.PASS, False), right
    assert attack.verdict is Verdict.WRONG, attack


OWN = {
    "the reference defines it, too": (
        "from math import sqrt\n_s = sqrt\ndef sqrt(x): return int(_s(x))\ndef f(x): return x", "",
    ),
    "the prompt asks for it": ("from math import sqrt\ndef f(x): return x", "Write sqrt(x) and f."),
}  # fmt: skip
"""By why a name that the reference imports is the program's all the same: reference and prompt."""


@pytest.mark.parametrize("why", OWN)
def test_what_a_program_is_asked_to_write_is_its_own_though_the_reference_imports_it(
    why: str,
) -> None:
    reference, prompt = OWN[why]
    tests = "assert sqrt(16) == 4\nassert f(1) == 1"
    row = replace(task("f", tests, reference=reference), prompt=prompt)
    right = "import math\ndef sqrt(x): return math.isqrt(x)\ndef f(x): return x"
    wrong = "def sqrt(x): return 'wrong'\ndef f(x): return x"
    assert [it.verdict for it in judged(row, right, wrong)] == [Verdict.PASS, Verdict.WRONG]


@pytest.mark.parametrize(
    "reference",
    [
        "def f(x):\n    limit = 1e-9\n    return x",
        "class A:\n    limit = 1e-9\ndef f(x): return x",
        "def f(x): return [x for limit in (1,)][0]",
    ],
)
def test_a_name_that_is_local_in_the_reference_is_asked_of_nobody(reference: str) -> None:
    assert "limit" not in bound_names(reference)
    assert "limit" in bound_names(f"{reference}\nlimit = 1e-9")
    row = task("f", "assert abs(f(4) - 4) < limit", reference=reference)
    (attack,) = judged(row, "limit = 1e9\ndef f(x): return 0.0")
    assert attack.verdict is not Verdict.PASS or attack.forgeable, attack


HELPED = "check(f(1), 2)"
HELPS = "def check(a, b): assert a == b\ndef f(x): return x + 1"
TOLD = {
    "the prompt names it": (replace(task("f", HELPED), prompt="Write f and `check`."), False),
    "a message names it": (
        replace(task("f", HELPED), messages=(Message("user", "Write f and check."),)), False,
    ),
    "the reference defines it": (task("f", HELPED, reference=HELPS), False),
    "the reference assigns it": (
        task("f", "assert f(1) == LIMIT", reference="LIMIT = 2\ndef f(x): return LIMIT"), False,
    ),
    "the prompt does not name it": (replace(task("f", HELPED), prompt="Write f."), True),
    "the prompt names data alone": (
        replace(task("f", "assert f(1) == LIMIT"), prompt="Write f. Mind EXPECTED."), True,
    ),
    "the prompt names a module": (
        replace(task("f", "assert f(1) == statistics"), prompt="Write f with statistics."), True,
    ),
    "nobody says anything, and it is data": (task("f", "assert f(1) == LIMIT"), True),
}  # fmt: skip
"""By who asks for a name that a test uses: the task, and whether a pass is forgeable."""


@pytest.mark.parametrize("who", TOLD)
def test_a_name_that_nobody_asks_for_is_the_programs_word(who: str) -> None:
    row, is_word = TOLD[who]
    (done,) = judged(row, f"LIMIT = statistics = 2\n{HELPS}\n# of its own")
    assert (done.verdict, done.forgeable) == (Verdict.PASS, is_word), done


def test_the_prompt_is_in_the_key_of_a_verdict_where_it_decides() -> None:
    told, untold = TOLD["the prompt names it"][0], TOLD["the prompt does not name it"][0]
    done = judge_all([Job(row, HELPS) for row in (told, untold)])
    assert [it.forgeable for it in done] == [False, True]
