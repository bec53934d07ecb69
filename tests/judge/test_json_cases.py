"""Cases of QuixBugs: JSON lines of arguments and values, compared outside of the program."""

from __future__ import annotations

import json

import pytest

from assay.check.attacks import attacks_on, lazy_programs
from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.json_cases import JsonCases, calls_of
from assay.prompts import messages
from assay.tasks.exact import row_of
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Execution, Task, Verdict
from tests.judge.test_languages import INSTALLED

GCD = "[[17, 0], 17]\n[[13, 13], 13]\n[[37, 600], 1]\n\n[[20, 100], 20]\n"
FLATTEN = "[[[[1, [], [2, 3]], [[4]], 5]], [1, 2, 3, 4, 5]]\n[[[[], [], []]], []]\n"
BITS = "[127, 7]\n[128, 1]\n"
RIGHT = "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)\n"
BUGGY = "def gcd(a, b):\n    return a if b == 0 else gcd(a % b, b)\n"


def task(name: str, cases: str, language: str = "python", **more: object) -> Task:
    check = {"cases": cases, **more}
    row = {"format": "assay", "id": name, "prompt": f"Write {name}.", "entry_point": name,
           "checks": [check], "language": language}  # fmt: skip
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
    assert none.verdict is Verdict.ERROR


@pytest.mark.long
def test_generators_one_argument_and_values_within_a_tolerance_are_right() -> None:
    flatten = (
        "def flatten(it):\n    for x in it:\n        if isinstance(x, list):\n"
        "            yield from flatten(x)\n        else:\n            yield x"
    )
    root = "def sqrt(x, epsilon):\n    return x ** 0.5\n"
    cases = "[[2, 0.01], 1.4166666666666665]\n"
    for name, text, tolerance, program, verdict in (
        ("flatten", FLATTEN, 0.0, flatten, "pass"),
        ("bitcount", BITS, 0.0, "def bitcount(n): return bin(n).count('1')", "pass"),
        ("sqrt", cases, 0.01, root, "pass"),
        ("sqrt", cases, 0.0, root, "wrong"),
    ):
        (execution,) = judged(task(name, text, tolerance=tolerance), program)
        assert execution.verdict == verdict, (name, execution)


def test_no_attack_and_no_lazy_program_passes() -> None:
    gcd = task("gcd", GCD)
    early = "open('answers', 'w').write('[17]\\n[13]\\n[1]\\n[20]\\n')\nimport os\n"
    more = {
        "too few": f"{early.replace('[20]', '')}os._exit(0)",
        "an answer too many": f"{RIGHT}import atexit\n"
        "atexit.register(lambda: open('answers', 'a').write('[1]\\n'))",
        "a patched json": "import json\njson.dumps = lambda *_, **__: '[17]'\ndef gcd(a, b): pass",
        "text of an object": "class A:\n    __str__ = lambda s: '17'\ndef gcd(a, b): return A()",
        "equal to all": "class A(int):\n    __eq__ = lambda *_: True\ndef gcd(a, b): return A()",
    }
    programs = {**attacks_on(gcd), **lazy_programs(gcd), **more}
    assert len(programs) > 15
    ends = dict(zip(programs, judged(gcd, *programs.values()), strict=True))
    assert [name for name, one in ends.items() if one.verdict is Verdict.PASS] == []
    assert [name for name, one in ends.items() if one.verdict is Verdict.INFRA] == []


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
def test_a_language_with_a_driver_has_such_cases_too() -> None:
    gcd = task("gcd", GCD, "javascript")
    program = "const gcd = (a, b) => b === 0 ? a : gcd(b, a % b);"
    right, forged = judged(gcd, program, *attacks_on(gcd).values())
    assert (right.verdict, right.total) == ("pass", 4)
    assert forged.verdict is Verdict.WRONG


def test_a_row_is_written_and_read_unchanged_and_shown() -> None:
    gcd = task("gcd", GCD, hidden=False)
    assert gcd.checks == (JsonCases(GCD, hidden=False),)
    assert task_of(Row(json.loads(json.dumps(row_of(gcd))), "the row")) == gcd
    assert "Write gcd." in messages(gcd)[0].content
    assert kind_of(gcd.checks[0]).show(gcd.checks[0], gcd).startswith("assert gcd(17, 0) == 17\n")


@pytest.mark.parametrize("cases", ["", "[1, 2", "[[1]]", "7", '{"a": 1}', "[" * 100_000])
def test_a_line_that_is_no_case_is_named(cases: str) -> None:
    with pytest.raises(DataError, match=r"the tests of task 'f': (case 1|there is no case)"):
        judged(task("f", cases), "def f(): pass")
    with pytest.raises(DataError, match="can only read and print"):
        judged(task("f", "[1, 2]", "c"), "int f;")
    assert len(calls_of(JsonCases("[1, 2]\n"))) == 1
