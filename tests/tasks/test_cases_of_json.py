"""Cases of QuixBugs, JSON lines of arguments and values, become calls."""

from __future__ import annotations

import json

import pytest

from assay.check.attacks import attacks_on, lazy_programs
from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.tasks.exact import row_of
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Call, Execution, Task, Verdict
from tests.judge.test_languages import INSTALLED

GCD = "[[17, 0], 17]\n[[13, 13], 13]\n[[37, 600], 1]\n\n[[20, 100], 20]\n"
FLATTEN = "[[[[1, [], [2, 3]], [[4]], 5]], [1, 2, 3, 4, 5]]\n[[[[], [], []]], []]\n"
BITS = "[127, 7]\n[128, 1]\n"
RIGHT = "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)\n"
BUGGY = "def gcd(a, b):\n    return a if b == 0 else gcd(a % b, b)\n"


def task(name: str, cases: str, language: str = "python", **more: object) -> Task:
    row = {"id": name, "prompt": f"Write {name}.", "entry_point": name, "cases": cases,
           "language": language, **more}  # fmt: skip
    return task_of(Row(row, "the row"))


def judged(task: Task, *programs: str) -> list[Execution]:
    return judge_all([Job(task, program) for program in programs], stop_early=False)


def test_the_program_passes_and_quixbugs_own_bug_and_a_wrong_value_do_not() -> None:
    one = "def gcd(a, b):\n    print('[17]')\n    return 17 if b == 0 else 13"
    right, buggy, wrong, none = judged(task("gcd", GCD), RIGHT, BUGGY, one, "x = 1")
    assert (right.verdict, right.passed, right.total, right.forgeable) == ("pass", 4, 4, False)
    assert (buggy.verdict, buggy.passed) == (Verdict.ERROR, 1)
    assert "RecursionError" in buggy.detail
    assert (wrong.verdict, wrong.passed) == (Verdict.WRONG, 2)
    assert wrong.detail == "call 3, gcd(37, 600) gives 13, not 1"
    assert none.verdict is Verdict.NO_CODE


FLATTENS = """def flatten(it):
    for x in it:
        if isinstance(x, list):
            yield from flatten(x)
        else:
            yield x"""
ROOT = "def f(x, epsilon):\n    return x ** 0.5\n"
VALUES = [
    ("flatten", FLATTEN, FLATTENS, "pass"), ("bitcount", BITS, "bitcount = int.bit_count", "pass"),
    ("f", "[[2, 0.01], 1.4166666666666665]", ROOT, "wrong"),
    ("f", "[[1], [[1, 3], [2, 3]]]", "def f(n):\n    return [(1, 3), (2, 3)]", "pass"),
    ("f", "[[1], [[1, 3], [2, 3]]]", "def f(n):\n    return zip((1, 2), (3, 3))", "pass"),
    ("f", "[[1], [7]]", "def f(n):\n    return {7}", "pass"),
    ("f", '[[1], {"1": [2]}]', "def f(n):\n    return {1: (2,)}", "pass"),
    ("f", "[[1], 2.0]", "def f(n):\n    return 2", "pass"),
    ("f", "[[1], NaN]", "def f(n):\n    return float('nan')", "pass"),
    ("f", "[[1], Infinity]", "def f(n):\n    return 1e308", "wrong"),
    ("f", "[[1], null]", "def f(n):\n    pass", "pass"),
    ("f", '[[1], "a"]', "def f(n):\n    return ['a']", "wrong"),
    ("f", "[[1], [1, 2]]", "def f(n):\n    return [1]", "wrong"),
    ("f", "[[1], [1]]", "def f(n):\n    yield from (1, 1)", "wrong"),
    ("f", "[[1], []]", "class A:\n    pass\ndef f(n):\n    return A()", "wrong"),
]  # fmt: skip


def test_a_value_counts_as_what_json_makes_of_it() -> None:
    jobs = [Job(task(name, cases), program) for name, cases, program, _ in VALUES]
    jobs.append(Job(task("f", VALUES[2][1], tolerance=0.01), ROOT))
    verdicts = [str(execution.verdict) for execution in judge_all(jobs)]
    assert verdicts == [*(verdict for *_, verdict in VALUES), "pass"]


def test_no_attack_and_no_lazy_program_passes() -> None:
    gcd = task("gcd", GCD)
    more = {
        "a patched json": "import json\njson.dumps = lambda *_, **__: '[17]'\ndef gcd(a, b): pass",
        "text of an object": "class A:\n    __str__ = lambda s: '17'\ndef gcd(a, b): return A()",
        "equal to all": "class A(int):\n    __eq__ = lambda *_: True\ndef gcd(a, b): return A()",
    }
    programs = {**attacks_on(gcd), **lazy_programs(gcd), **more}
    assert len(programs) > 15
    ends = dict(zip(programs, judged(gcd, *programs.values()), strict=True))
    assert [name for name, one in ends.items() if one.verdict is Verdict.PASS] == []
    assert [name for name, one in ends.items() if not one.is_judged] == []


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
def test_a_language_with_a_driver_has_such_cases_too() -> None:
    gcd = task("gcd", GCD, "javascript")
    program = "const gcd = (a, b) => b === 0 ? a : gcd(b, a % b);"
    right, forged = judged(gcd, program, *attacks_on(gcd).values())
    assert (right.verdict, right.total) == ("pass", 4)
    assert forged.verdict is Verdict.WRONG


def test_its_calls_are_written_and_read_unchanged() -> None:
    gcd = task("gcd", GCD)
    assert gcd.checks[0] == Call("[17,0]", "17", 1e-6)
    assert task_of(Row(json.loads(json.dumps(row_of(gcd))), "the row")) == gcd


@pytest.mark.parametrize(
    "cases",
    ["", " \n", "[1, 2", "[[1]]", "7", '{"a": 1}', '{"a": 1, "b": 2}', '"ab"', "[" * 100_000],
)
@pytest.mark.parametrize("language", ["python", "javascript"])
def test_a_line_that_is_no_case_is_named(cases: str, language: str) -> None:
    with pytest.raises(DataError) as raised:
        task("f", f"{cases}\n", language)
    assert "'cases'" in str(raised.value)
    assert "[[17, 0], 17]" in str(raised.value)


def test_cases_and_inputs_exclude_each_other() -> None:
    with pytest.raises(DataError, match="inputs"):
        task("f", BITS, inputs=[[1]], expected=[1])
