"""Whole numbers of more than 4,300 digits, which Python refuses to read and show by default."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from assay.judge import Job
from assay.judge.codec import Unpacker, loads
from assay.judge.test_code import show_value
from assay.sandbox.limits import INT_DIGITS
from assay.tasks import load
from assay.types import Call, Check, Exchange, Task, Verdict
from tests.judge.opened import judge_all

NINES = "9" * 6000
DOUBLES = "n = int(input())\nprint(2 * n)\n"
IN_FOLDER = "import tempfile\n" + DOUBLES
AS_TEXT = "def f(text):\n    return str(int(text) + 1)\n"
AS_INT = "def f(text):\n    return int(text) + 1\n"
SPELLED = f"def f(text):\n    return {NINES} + 1\n"
EXCHANGES = Task("double", "", (Exchange(NINES, "1" + "9" * 5999 + "8"),), "")
CHECKER = "def check(stdin, output, expected):\n    return int(output) == 2 * int(stdin)\n"
TEXT = Task("text", "", (Check(f"assert f({NINES!r}) == str(10**6000)"),), "f")
NUMBER = Task("number", "", (Check(f"assert str(f({NINES!r})) == '1' + '0' * 6000"),), "f")
LITERAL = Task("literal", "", (Check(f"assert f({NINES!r}) == 1{'0' * 6000}"),), "f")
CALL = Task("call", "", (Call(json.dumps([NINES]), json.dumps({"int": hex(10**6000)})),), "f")


def test_numbers_of_many_digits_are_judged() -> None:
    jobs = [
        Job(EXCHANGES, DOUBLES), Job(EXCHANGES, IN_FOLDER),
        Job(replace(EXCHANGES, checker=CHECKER), DOUBLES),
        Job(TEXT, AS_TEXT), Job(NUMBER, AS_INT), Job(NUMBER, SPELLED), Job(LITERAL, AS_INT),
        Job(CALL, AS_INT),
    ]  # fmt: skip
    ended = judge_all(jobs)
    assert [(run.verdict, run.detail) for run in ended] == [(Verdict.PASS, "")] * len(jobs)


def test_a_number_beyond_the_bound_is_the_programs_error() -> None:
    most, more = (Task("t", "", (Exchange("", "1" * n),), "") for n in (INT_DIGITS, INT_DIGITS + 1))
    ones = "print((10**{0} - 1) // 9)"
    ended = judge_all([
        Job(most, ones.format(INT_DIGITS)), Job(more, ones.format(INT_DIGITS + 1)),
        Job(more, f"import sys\nsys.set_int_max_str_digits(0)\n{ones.format(INT_DIGITS + 1)}"),
    ])  # fmt: skip
    assert [run.verdict for run in ended] == [Verdict.PASS, Verdict.ERROR, Verdict.PASS]


def test_rows_may_hold_such_numbers(tmp_path: Path) -> None:
    row = {"prompt": "p", "entry_point": "f", "inputs": [[int(NINES)]], "expected": [10**6000]}
    tests = {"prompt": "p", "entry_point": "f", "tests": [f"assert f({NINES}) == 1{'0' * 6000}"]}
    file = tmp_path / "my.jsonl"
    program = "def f(n):\n    return n + 1\n"
    file.write_text(
        "".join(json.dumps({**one, "reference": program}) + "\n" for one in (row, tests))
    )
    tasks = load(str(file))
    ended = judge_all([Job(task, program) for task in tasks])
    assert {run.verdict for run in ended} == {Verdict.PASS}


def test_many_long_numbers_from_a_program_cost_the_judge_little() -> None:
    numbers = [{"int": hex(10**40_000)}] * 300
    values = Unpacker().value(loads(json.dumps(numbers).encode()))
    assert show_value(values) == "an int of more than 4300 digits"  # 300 of them take seconds
    assert sys.get_int_max_str_digits() == INT_DIGITS
