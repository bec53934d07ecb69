"""Calls with given arguments: what counts as the right answer, and who says so."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from assay import user_cache
from assay.judge import Job, Judge, edition
from assay.judge.kinds.calls import equal
from assay.sandbox.limits import Limits
from assay.types import Call, Cause, Check, Execution, Task, Verdict
from tests.judge.jobs import judged_in_turn
from tests.judge.opened import judge_all

HALVE = "def f(x): return [x / 2, x]"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "assay" / "expected"


def task(
    *calls: Call | Check, reference: str | None = None, checker: str = "", setup: str = ""
) -> Task:
    return Task("t", "", calls, "f", reference=reference, checker=checker, setup=setup)


def judged(of: Task, *programs: str, stop_early: bool = True) -> list[Execution]:
    return judge_all([Job(of, program) for program in programs], stop_early=stop_early)


def verdicts(of: Task, *programs: str) -> list[str]:
    return [execution.verdict.value for execution in judged(of, *programs)]


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "holds"),
    [
        (1, 1.0, 0, True),
        (True, 1, 0, True),
        ((1, 2), [1, 2], 0, False),
        (0.1 + 0.2, 0.3, 0, False),
        (0.1 + 0.2, 0.3, 1e-6, True),
        (1.0000011, 1.0, 1e-6, True),  # 1e-6 + 1e-7 x 1.0
        (1.0000012, 1.0, 1e-6, False),
        (1e9 + 90, 1e9, 1e-6, True),  # 1e-7 x 1e9 = 100
        (1e9 + 110, 1e9, 1e-6, False),
        (10**9 + 1, 10**9, 1e-6, False),
        ([1, (2.5, {"a": 3.0000001})], [1, (2.5, {"a": 3.0})], 1e-6, True),
        ([1, (2.5, {"a": 3.1})], [1, (2.5, {"a": 3.0})], 1e-6, False),
        ([1.0, 2.0], [1.0], 1e-6, False),
        ([1.0000001], (1.0,), 1e-6, False),
        (1, 1.0000001, 1e-6, False),
        ({"a": 1.0000001, "b": 1}, {"a": 1.0}, 1e-6, False),
        (math.nan, math.nan, 0, True),
        ([math.nan], [math.nan], 1e-6, True),
        (math.nan, 1.0, 1e9, False),
        (1.0, math.nan, 1e9, False),
        (math.inf, math.inf, 0, True),
        (5.0, math.inf, 1e-6, False),
        (math.inf, 5.0, 1e9, False),
        (-math.inf, math.inf, 1e9, False),
        (1.0000001 + 2j, 1 + 2j, 1e-6, True),
        (1 + 3j, 1 + 2j, 1e-6, False),
        (None, 0, 1e-6, False),
        ("1.0", 1.0, 1e-6, False),
    ],
)
def test_an_answer_is_equal_as_python_has_it_or_within_the_tolerance(
    value: object, expected: object, tolerance: float, holds: bool
) -> None:
    assert equal(value, expected, tolerance) is holds


def test_arrays_are_compared_item_by_item() -> None:
    import numpy as np

    assert equal(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0000001]]), 1e-6)
    assert not equal(np.array([[1.0, 2.0]]), np.array([[1.0, 2.1]]), 1e-6)
    assert not equal(np.array([1.0, 1.0]), np.array([[1.0], [1.0]]), 1e-6)
    assert not equal(np.array([1.0, 1.0]), [1.0, 1.0], 1e-6)
    assert equal(np.float64(2.0), 2, 0)


def test_a_number_of_numpys_does_not_decide_what_it_equals() -> None:
    import numpy as np

    rounded, endless, pi = np.float16(3.14), np.float16("inf"), 3.14159265
    for value, expected in (
        (rounded, pi), ([rounded], [pi]), ({"a": (rounded,)}, {"a": (pi,)}), (endless, 65520),
        (np.array([3.14], np.float16), np.array([pi])), ([endless], [65520]),
        (np.float32(0.1), 0.1),
    ):  # fmt: skip
        assert not equal(value, expected, 0)
    assert equal([np.float16(0.5), np.longdouble(2)], [0.5, 2], 0)


def test_calls_pass_where_every_answer_is_right() -> None:
    both = task(
        Call("[3]", "[1.5,3]"), Call("[[]]", '{"tuple":[]}'), Check("assert f(1) == [0.5, 1]")
    )
    right = "def f(x): return tuple(x) if isinstance(x, list) else [x / 2, x]"
    passed, wrong = judged(both, right, HALVE)
    assert (passed.verdict, passed.passed, passed.total) == (Verdict.PASS, 3, 3)
    assert (wrong.verdict, wrong.passed) == (Verdict.ERROR, 1)
    assert wrong.detail.startswith("TypeError: unsupported operand")
    assert wrong.detail.endswith("at call 2, f([])")


@pytest.mark.long
def test_of_large_tasks_long_answers_are_compared_by_a_digest_and_programs_have_more_memory() -> (
    None
):
    inputs = Call("[60000]"), Call("[3]")
    row = "('a', n / 2, None) * 200"  # 400 MiB of JSON in all
    right = f"def f(n): return [{row} for n in range(n)]"
    large = replace(task(*inputs, reference=right), large=True)
    filled = "held = [bytes(1000) for _ in range(700_000)]"
    told = f"def f(n): return [{row} for n in range(n)] if n < 9 else 'blake2b ' + '0' * 64"
    programs = (
        right,
        f"{filled}\n{right}",
        right.replace("n / 2", "n / 2 if n < 59999 else 0"),
        right.replace("None) * 200", "None) * (200 + (n == 7))"),
        told,
    )
    assert verdicts(large, *programs) == ["pass", "pass", "wrong", "wrong", "wrong"]
    small = replace(large, checks=inputs[1:], large=False)
    assert verdicts(small, f"{filled}\n{right}") == ["memory"]


def test_a_wrong_answer_says_which_call_what_came_and_what_was_expected() -> None:
    asked = task(Call('[1,"a"]', "3"), Call('[2,"b"]', "4"))
    (wrong,) = judged(asked, "def f(n, s): return n + 2 if n == 1 else [s] * 1000")
    assert wrong.detail.startswith("call 2, f(2, 'b') gives ['b', 'b', 'b',")
    assert wrong.detail.endswith("..., not 4")
    assert len(wrong.detail) <= 400
    (huge,) = judged(asked, "def f(n, s): return 10 ** 5000")
    assert huge.detail == "call 1, f(1, 'a') gives an int of more than 4300 digits, not 3"


def test_all_calls_are_made_unless_stopping_early() -> None:
    asked = task(*(Call(f"[{n}]", str(n)) for n in range(4)))
    (execution,) = judged(asked, "def f(n): return n % 2", stop_early=False)
    assert (execution.verdict, execution.passed, execution.total) == (Verdict.WRONG, 2, 4)


def test_none_is_a_right_answer_and_not_the_want_of_one() -> None:
    assert verdicts(task(Call("[]", "null")), "def f(): pass", "def f(): return 0") == [
        "pass",
        "wrong",
    ]


LIES = (
    (
        "class A(int):\n    __eq__ = lambda *_: True\n    __ne__ = lambda *_: False\n    __hash__ ="
        " lambda _: 3\n"
    ),
    "class A(float):\n    __eq__ = lambda *_: True\n    __sub__ = __rsub__ = lambda *_: 0.0\n",
    (
        "class A:\n    def __new__(cls, *_): return object.__new__(cls)\n    __eq__ = lambda *_:"
        " True\n"
    ),
    (
        "class A(list):\n    def __new__(cls, _): return list.__new__(cls)\n    def __init__(self,"
        " _): pass\n    __eq__ = lambda *_: True\n    __len__ = lambda _: 1\n"
    ),
)


@pytest.mark.parametrize(
    "checker", ["", "def check(arguments, value, expected): return value == expected"]
)
def test_values_that_lie_about_being_equal_get_nowhere(checker: str) -> None:
    asked = task(Call("[1]", "3", 1e-6), reference="def f(n): return n + 2", checker=checker)
    assert verdicts(asked, *(f"{lie}\ndef f(n): return A(7)" for lie in LIES)) == ["wrong"] * 4
    floats = task(Call("[1]", "[3.5]", 1e-6), checker=checker)
    assert verdicts(floats, *(f"{lie}\ndef f(n): return [A(7)]" for lie in LIES)) == ["wrong"] * 4


def test_a_program_cannot_learn_the_expected_value_or_change_it() -> None:
    asked = task(Call("[[3,1]]", "[1,3]"))
    search = "[o for o in gc.get_objects() if o == [1, 3] and o is not xs][:1]"
    cheat = f"import gc\ndef f(xs):\n    xs.sort()\n    return {search}"
    assert verdicts(asked, cheat, "def f(xs): return sorted(xs)") == ["wrong", "pass"]


def test_a_checker_decides_alone_and_what_it_raises_is_a_wrong_answer() -> None:
    root = (
        "import math\ndef check(arguments, value, expected):\n    return math.isclose(value ** 2,"
        " arguments[0])"
    )
    asked = task(Call("[4]", "null"), checker=root)
    programs = ("def f(x): return -2", "def f(x): return 3", "def f(x): return None")
    negative, three, nothing = judged(asked, *programs)
    assert [negative.verdict, three.verdict, nothing.verdict] == [
        Verdict.PASS,
        Verdict.WRONG,
        Verdict.WRONG,
    ]
    assert nothing.detail.startswith("TypeError: unsupported operand")
    assert nothing.detail.endswith("at call 1, f(4)")


@pytest.mark.parametrize(
    "checker", ["def check(:", "1 / 0", "def other(): 0", "raise SystemExit(0)"]
)
def test_a_broken_checker_is_the_tasks_fault_and_not_the_programs(checker: str) -> None:
    (execution,) = judged(task(Call("[4]", "2"), checker=checker), "def f(x): return 2")
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)


def test_a_checker_sees_no_name_of_the_programs() -> None:
    asked = task(
        Call("[4]", "2"), checker="def check(arguments, value, expected): return trust(value)"
    )
    (execution,) = judged(asked, "def trust(value): return True\ndef f(x): return 3")
    assert execution.verdict is Verdict.WRONG
    assert "NameError" in execution.detail


def test_the_reference_answers_what_has_no_expected_value_and_is_asked_once(cache: Path) -> None:
    asked = task(Call("[3]"), Call("[4]", "[2.0,4]"), Call("[5]"), reference=HALVE)
    assert verdicts(asked, HALVE, "def f(x): return [x // 2, x]") == ["pass", "wrong"]
    (file,) = cache.iterdir()
    assert json.loads(file.read_text()) == ["[1.5,3]", "[2.5,5]"]
    file.write_text('["[9,9]","[2.5,5]"]')
    assert verdicts(asked, "def f(x): return [9, 9] if x == 3 else [x / 2, x]") == ["pass"]


def test_with_another_version_of_a_package_the_reference_is_asked_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = task(Call("[3]"), reference=HALVE)
    verdicts(asked, HALVE)
    versions = edition.installed()
    monkeypatch.setattr(edition, "installed", lambda: [*versions, "numpy-9.0.dist-info"])
    verdicts(asked, HALVE)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", [b"", b"[", b"{}", b'["[1.5,3]"]', b"[1, 2]", b'["[", "1"]', b'["{\\"x\\":1}","1"]']
)
def test_a_damaged_file_of_answers_is_made_again(
    cache: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    asked = task(Call("[3]"), Call("[5]"), reference=HALVE)
    verdicts(asked, HALVE)
    (file,) = cache.iterdir()
    file.write_bytes(damage)
    assert verdicts(asked, HALVE) == ["pass"]
    assert json.loads(file.read_text()) == ["[1.5,3]", "[2.5,5]"]
    assert len(caplog.messages) == 1


def test_a_folder_that_cannot_be_written_costs_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert verdicts(task(Call("[3]"), reference=HALVE), HALVE) == ["pass"]
    (warning,) = caplog.messages
    assert "cannot be written" in warning


def test_many_programs_at_once_share_one_run_of_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = task(Call("[]"), reference="def f(): return 3")
    runs: list[Task] = []

    async def all_at_once() -> list[Execution]:
        async with Judge() as judge:
            inner = judge._answers

            async def counted(of: Task) -> tuple[Execution, list[str]]:
                runs.append(of)
                return await inner(of)

            monkeypatch.setattr(judge._references, "_answers", counted)
            return await asyncio.gather(
                *(judge.run(Job(asked, f"def f(): return {n % 4}")) for n in range(40))
            )

    found = asyncio.run(all_at_once())
    assert [execution.verdict is Verdict.PASS for execution in found] == [
        n % 4 == 3 for n in range(40)
    ]
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            task(Call("[3]"), Call("[0]"), reference="def f(x): return 1 // x"),
            "fails after 1 of 2 calls (error): Zero",
        ),
        (
            task(Call("[3]"), reference="def f(x): return f"),
            "call 1: the reference's answer is no data",
        ),
        (task(Call("[3]"), reference="def f(x): while True: pass"), "(compile)"),
        (
            task(Call("[3]"), reference="def f(x):\n    while True: pass"),
            "(timeout): used more than 2 s",
        ),
        (task(Call("[3]")), "call 1: no expected value and no reference"),
        (task(Check("1"), Call("[3", "1")), "call 2: not a frame"),
        (task(Call("3", "1")), "call 1: the arguments are no list"),
        (task(Call("[3]", "NaN")), "call 1: not a frame"),
        (task(Call("[3]", '{"what":1}')), "call 1: unknown tag 'what'"),
    ],
)
def test_a_task_that_cannot_be_judged_says_why_in_one_line(
    asked: Task, why: str, cache: Path
) -> None:
    (refused,) = judge_all([Job(asked, "def f(x): return 1")], Limits(cpu_seconds=0.2))
    of_reference = "fails" in why or "no data" in why or why[0] == "("
    cause = Cause.REFERENCE if of_reference else Cause.TASK
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, cause)
    assert why in refused.detail
    assert not cache.exists()


def test_expected_values_whose_setup_fails_are_the_users_to_mend() -> None:
    asked = task(Call("[3]"), reference=HALVE, setup="1 / 0")
    with_others = [Job(asked, HALVE), Job(task(Call("[3]", "[1.5,3]")), HALVE)]
    refused, passed = judge_all(with_others)
    assert (refused.verdict, passed.verdict) == (Verdict.UNJUDGED, Verdict.PASS)
    assert (refused.cause, refused.total) == (Cause.TASK, 1)
    assert "ZeroDivisionError" in refused.detail


def test_a_checker_has_no_part_in_what_the_reference_answers() -> None:
    forger = """import sys, builtins
def forged(self, answer): self.answers.append("null")
frame = sys._getframe()
while frame:
    if "self" in frame.f_locals and hasattr(frame.f_locals["self"], "keep"):
        type(frame.f_locals["self"]).keep = forged
    frame = frame.f_back
def check(arguments, value, expected): return True
"""
    with_checker = task(Call("[3]"), reference=HALVE, checker=forger)
    assert verdicts(with_checker, "def f(x): return None") == ["pass"]  # its own rule
    assert verdicts(task(Call("[3]"), reference=HALVE), HALVE, "def f(x): return None") == [
        "pass", "wrong",
    ]  # fmt: skip


def test_texts_that_give_a_program_methods_are_in_the_keys_of_answers_and_verdicts() -> None:
    setup = "class Node:\n    def __init__(self): self.at = 1\n    def get(self): return self.at"
    program = "def f(): return Node().get() if hasattr(Node, 'get') else 0"
    hidden = task(Call("[]"), reference=program, setup=setup)
    told = [replace(hidden, prompt="Use Node."), replace(hidden, stub="# Node")]
    asked = [Job(one, answer) for one in (hidden, *told)
             for answer in ("def f(): return 0", "def f(): return 1", program)]  # fmt: skip
    assert [one.verdict.value for one in judge_all(asked)] == [
        "pass", "wrong", "pass", *["wrong", "pass", "pass"] * 2
    ]  # fmt: skip


def test_a_cached_answer_that_is_no_data_still_needs_the_checker(cache: Path) -> None:
    thing = "class Thing: pass\ndef f(x): return Thing()"
    checker = "def check(arguments, value, expected): return True"
    assert verdicts(task(Call("[3]"), reference=thing, checker=checker), thing) == ["pass"]
    assert len(list(cache.iterdir())) == 1
    (refused,) = judged(task(Call("[3]"), reference=thing), "def f(x): return 1")
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.REFERENCE)
    assert "checker" in refused.detail


def test_a_user_without_a_home_has_expected_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME")
    user_cache._warn.cache_clear()
    tasks = [task(Call(f"[{number}]"), reference=HALVE) for number in range(2)]
    assert [one.verdict for one in judge_all([Job(one, HALVE) for one in tasks])] == ["pass"] * 2
    assert len([text for text in caplog.messages if "set XDG_CACHE_HOME" in text]) == 1


def test_answers_that_are_no_data_are_a_checkers_to_judge() -> None:
    checker = "def check(arguments, value, expected): return (value is None) == (expected is None)"
    match = "import re\ndef f(s): return re.match('a', s)"
    asked = task(Call('["ab"]'), Call('["b"]'), reference=match, checker=checker)
    assert verdicts(asked, match, "def f(s): return 1 if 'a' in s else None",
    "def f(s): return 1") == [
        "pass", "pass", "wrong",
    ]  # fmt: skip


def test_calls_run_in_their_order_whatever_failed_before() -> None:
    many = task(*(Call(f"[{n}]", str(n)) for n in range(20)))

    wrong = "def f(x): return -1 if x == 13 else x"
    first, second = judged_in_turn(Job(many, wrong), Job(many, wrong + "  # again"))
    assert first.passed == second.passed == 13
    assert first.detail == second.detail
    assert "call 14, f(13)" in first.detail


BUSY = """
import time
def f(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
    return seconds
"""


@pytest.mark.long
def test_each_call_has_the_cpu_time_to_itself() -> None:
    short = Limits(cpu_seconds=0.2, wall_seconds=1)
    (many,) = judge_all([Job(task(*[Call("[0.15]", "0.15")] * 8), BUSY)], short)
    assert (many.verdict, many.passed) == (Verdict.PASS, 8)  # 1.2 s of CPU and of wall time
    (one,) = judge_all([Job(task(Call("[0.01]", "0.01"), Call("[0.4]", "0.4")), BUSY)], short)
    assert (one.verdict, one.detail) == (Verdict.TIMEOUT, "used more than 0.2 s of CPU time")
    assert one.cpu_seconds < 0.39


@pytest.mark.long
def test_all_calls_together_have_ten_times_the_cpu_time() -> None:
    short = Limits(cpu_seconds=0.1)
    (execution,) = judge_all([Job(task(*[Call("[0.08]", "0.08")] * 20), BUSY)], short)
    assert (execution.verdict, execution.detail) == (
        Verdict.TIMEOUT, "used more than 1 s of CPU time",
    )  # fmt: skip
    assert execution.cpu_seconds < 1.2


def test_a_program_cannot_take_the_time_of_calls_that_are_not_made() -> None:
    asking = task(*[Call(f"[{number}]", "1") for number in range(9)])
    spins = "import os\nfor _ in range(9): os.write(3, bytes(4))\nwhile True: pass"
    (execution,) = judge_all([Job(asking, spins)], Limits(cpu_seconds=0.2))
    assert execution.verdict in (Verdict.TIMEOUT, Verdict.FORBIDDEN)
    assert execution.cpu_seconds < 0.8


@pytest.mark.long
def test_an_answer_too_large_to_carry_is_computed_again_by_the_reference(cache: Path) -> None:
    """In the worker: HumanEval/130 asks for 1,000,005 numbers ten times."""
    pile = "def f(xs, n):\n    xs.append(0)\n    return [1 + i / 2 for i in range(n)]"
    asked = task(Call("[[],3]"), Call("[[],1000005]"), reference=pile)
    late = pile.replace("return ", "if n > 4: n -= 1\n    return ")
    rounded = "def f(xs, n): return [1 + i // 2 if i % 2 == 0 else 1 + i / 2 for i in range(n)]"
    right, wrong, other = judged(asked, pile, late, rounded)
    assert [right.verdict, wrong.verdict, other.verdict] == ["pass", "wrong", "pass"]
    assert wrong.detail.startswith("call 2, f([], 1000005) gives [1.0, 1.5, 2.0,")
    (file,) = cache.iterdir()
    assert json.loads(file.read_text()) == ["[1.0,1.5,2.0]", '{"recomputed":[]}']


def test_checks_keep_their_order_since_they_may_build_on_each_other() -> None:
    building = task(Check("n = f(1)"), Check("assert n == 1"), Check("assert f(2) == 2 and n == 1"))
    wrong = [Job(building, f"def f(x): return 1  # {n}") for n in range(3)]
    assert [execution.passed for execution in judge_all(wrong)] == [2, 2, 2]


def test_an_array_is_judged_as_a_list_unless_the_task_uses_numpy_itself() -> None:
    pytest.importorskip("numpy")
    one = task(Call("[]", "[5]"), Call("[]", "[5]"))
    arrays = ("5", "[5]", "[[[5]]]")
    programs = [f"import numpy\ndef f(): return numpy.array({array})" for array in arrays]
    assert verdicts(one, *programs) == ["wrong", "pass", "wrong"]
    of_arrays = task(Call("[]"), reference=programs[1])
    assert verdicts(of_arrays, *programs, "def f(): return [5]") == [
        "wrong", "pass", "wrong", "wrong",
    ]  # fmt: skip
    scalar = "import numpy\ndef f(): return numpy.int64(5)"
    assert verdicts(task(Call("[]", "5")), scalar) == ["pass"]


def test_a_method_is_called_on_a_new_object_each_time_or_else_as_a_function() -> None:
    calls = (Call("[1]", "[1]"), Call("[2]", "[2]"))
    asserts = (
        Check("def check(candidate):\n    assert candidate(x=3) == [3]\n\ncheck(candidate)"),
    )
    programs = [
        "class Solution:\n    def __init__(self): self.a = []\n"
        "    def f(self, x): self.a.append(x); return self.a",
        "class Solution:\n    a = []\n    def f(self, x): self.a.append(x); return self.a",
        "def f(x): return [x]",
        "class Solution: pass\ndef f(x): return [x]",
        "class Solution:\n    def __init__(self, a): pass\n    def f(self, x): return [x]",
        "class Other:\n    def f(self, x): return [x]",
    ]
    of_calls, of_asserts = (Task("t", "", checks, "Solution().f") for checks in (calls, asserts))
    assert verdicts(of_calls, *programs) == ["pass", "wrong", "pass", "error", "error", "no_code"]
    assert verdicts(of_asserts, *programs) == ["pass", "pass", "pass", "error", "error", "no_code"]
