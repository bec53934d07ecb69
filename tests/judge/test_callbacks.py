"""Functions that a check passes to the program."""

from __future__ import annotations

import pytest

from assay.judge import Job
from assay.types import Task, Verdict
from tests.judge.jobs import task
from tests.judge.opened import judge_all

TWICE = "def f(g, x): return g(g(x))"
CALLING = task(
    "f", "assert f(lambda x: x + 3, 4) == 10", "assert f(str.upper, 'a') == 'A'", reference=TWICE
)


def verdict_of(judged: Task, program: str) -> tuple[Verdict, str]:
    execution = judge_all([Job(judged, program)])[0]
    return execution.verdict, execution.detail


def test_a_program_may_call_what_it_was_passed_where_the_reference_does() -> None:
    assert verdict_of(CALLING, TWICE) == (Verdict.PASS, "")
    assert verdict_of(CALLING, "def f(g, x): return g(x)")[0] is Verdict.WRONG


def test_no_reference_is_needed_for_that() -> None:
    without = task("f", "assert f(lambda x: x + 3, 4) == 10")
    assert verdict_of(without, TWICE) == (Verdict.PASS, "")
    assert verdict_of(without, "def f(g, x): return g(x)")[0] is Verdict.WRONG


def test_an_object_of_the_checks_own_class_cannot_be_passed() -> None:
    check = "class A:\n    n = 1\nassert f(A()) == 1"
    verdict, detail = verdict_of(task("f", check), "def f(a): return a.n")
    assert verdict is Verdict.UNJUDGED
    assert detail == "this test passes a A object to the program"


@pytest.mark.parametrize(
    ("check", "reference"),
    [
        ("seen = []\nf([1, 2], seen.append)\nassert seen == [2, 4]",
        "def f(xs, each):\n    for x in xs: each(2 * x)"),
        ("assert f(lambda a, *, b: (a, b)) == (1, {2})", "def f(g): return g(1, b={2})"),
        ("assert f(lambda n: f(None) + n) == 8", "def f(g): return 3 if g is None else g(5)"),
        ("assert f({'go': lambda: 7}) == 7", "def f(d): return d['go']()"),
        ("assert f(int, '12') == 12", "def f(g, x): return g(x)"),
        ("def boom(): raise KeyError('k')\nassert f(boom) == 'k'",
         "def f(g):\n    try: g()\n    except KeyError as error: return error.args[0]"),
        ("x = [3, 1, 2]\nf(x, lambda n: -n)\nassert x == [3, 2, 1]",
        "def f(x, key): x.sort(key=key)"),
    ],
)  # fmt: skip
def test_data_crosses_both_ways(check: str, reference: str) -> None:
    assert verdict_of(task("f", check, reference=reference), reference) == (Verdict.PASS, "")


def test_what_a_passed_function_raises_reaches_the_program_and_comes_back() -> None:
    check = (
        "def boom(): raise KeyError('k')\ntry: f(boom)\nexcept KeyError: pass\nelse: assert False"
    )
    calls = "def f(g): g()"
    assert verdict_of(task("f", check, reference=calls), calls) == (Verdict.PASS, "")
    assert verdict_of(task("f", check, reference=calls), "def f(g): pass")[0] is Verdict.WRONG


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("nothing that was passed", '[{at}, "callback", 7, [1], {{"dict": []}}]'),
        ("a number that is none", '[{at}, "callback", true, [1], {{"dict": []}}]'),
        ("arguments that are no list", '[{at}, "callback", 0, "x", {{"dict": []}}]'),
        ("too few parts", '[{at}, "callback", 0]'),
        ("names that are no texts", '[{at}, "callback", 0, [], [1]]'),
    ],
)
def test_a_call_back_of_the_programs_own_making_is_forbidden(name: str, frame: str) -> None:
    forging = (
        "import os, struct\ndef f(g, x):\n"
        f"    body = '''{frame}'''.format(at=2).encode()\n"
        "    os.write(3, struct.pack('!I', len(body)) + body)\n"
        "    return g(g(x))"
    )
    assert verdict_of(CALLING, forging)[0] is Verdict.FORBIDDEN, name


def test_a_task_that_passes_no_function_grants_no_call_back() -> None:
    forging = (
        'import os, struct\ndef f(x):\n    body = b\'[2, "callback", 0, [1], {"dict": []}]\'\n'
        "    os.write(3, struct.pack('!I', len(body)) + body)\n    return x"
    )
    plain = task("f", "assert f(1) == 2", reference="def f(x): return x + 1")
    assert verdict_of(plain, forging)[0] is Verdict.FORBIDDEN


def test_calling_back_without_end_is_a_timeout() -> None:
    from assay.sandbox.limits import Limits

    endless = "def f(g, x):\n    while True: g(x)"
    execution = judge_all([Job(CALLING, endless)], Limits(cpu_seconds=0.3, wall_seconds=3))[0]
    assert execution.verdict is Verdict.TIMEOUT


def test_what_a_passed_function_asserts_is_the_checks_own_assertion() -> None:
    check = "def seven(x): assert x == 7, x\nf(seven)"
    picky = task("f", check, reference="def f(g): g(7)")
    tries = "def f(g):\n    for x in range(9):\n        try: g(x)\n        except Exception: pass"
    assert verdict_of(picky, tries)[0] is Verdict.WRONG


def test_what_only_a_wrong_program_makes_a_check_pass_is_the_programs_doing() -> None:
    check = "import re\nassert f(lambda s: re.match('a', s)) is None"
    matching = task("f", check, reference="def f(p): return p('b')")
    assert verdict_of(matching, "def f(p): return p('a')")[0] is Verdict.WRONG
