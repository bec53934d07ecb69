"""Each verdict, by a program that deserves it, and what stands beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay.errors import SettingsError
from assay.judge import Job
from assay.judge.verdict import decide
from assay.judge.worker_messages import Outcome, WorkerReport
from assay.sandbox.ending import DONE, HUNG_UP, RunRecord, ending
from assay.sandbox.limits import Limits
from assay.sandbox.program import Ended, Result
from assay.types import Cause, Execution, Verdict
from tests.judge.jobs import ADD, RIGHT, add, task
from tests.judge.opened import judge_all

QUICK = Limits(cpu_seconds=0.4, wall_seconds=2.0, memory_mb=128)
CASES: dict[str, tuple[str | None, Verdict, str]] = {
    "right": (RIGHT, Verdict.PASS, ""),
    "a right program that prints": (f"print('hello')\n{RIGHT}", Verdict.PASS, ""),
    "a right program that sets its streams up": (
        "import io, sys\nsys.stdout.reconfigure(encoding='utf-8')\n"
        f"sys.stderr = io.TextIOWrapper(sys.stderr.buffer)\nprint('hello')\n{RIGHT}",
        Verdict.PASS,
        "",
    ),
    "a wrong value": ("def add(a, b): return 3", Verdict.WRONG, "add([1], [2]) == [1, 2]"),
    "a value of the wrong type": ("def add(a, b): return str(a + b)", Verdict.WRONG, "add(1, 2)"),
    "an exception in the call": (
        "def add(a, b): return 1 / 0",
        Verdict.ERROR,
        "ZeroDivisionError: division by zero",
    ),
    "an exception while imported": ("raise KeyError('k')", Verdict.ERROR, "KeyError: 'k'"),
    "an import that is not there": (
        "import no_such_module",
        Verdict.ERROR,
        "No module named 'no_such_module'",
    ),
    "too few parameters": ("def add(a): return a", Verdict.ERROR, "takes 1 positional argument"),
    "an early exit": (
        "import os\ndef add(a, b): os._exit(0)",
        Verdict.ERROR,
        "exited with status 0",
    ),
    "a crash": (
        "import ctypes\ndef add(a, b): ctypes.string_at(0)",
        Verdict.ERROR,
        "killed by SIGSEGV",
    ),
    "a signal that it sent itself": (
        "import signal\nsignal.raise_signal(signal.SIGXCPU)",
        Verdict.ERROR,
        "killed by SIGXCPU",
    ),
    "text for a terminal": (
        "raise ValueError('\\x1b[2J\\r\\nok\\u202e')",
        Verdict.ERROR,
        r"ValueError: \x1b[2J\r\nok\u202e",
    ),
    "text for a terminal as its last words": (
        "import os\nos.write(2, b'\\x1b[31m\\xff!')\nos._exit(3)",
        Verdict.ERROR,
        r"exited with status 3: \x1b[31m",
    ),
    "a loop": ("def add(a, b):\n    while True: pass", Verdict.TIMEOUT, "0.4 s of CPU time"),
    "a sleep": ("import time\ndef add(a, b): time.sleep(60)", Verdict.TIMEOUT, "more than 2 s"),
    "too much memory": ("def add(a, b): return bytes(10**9)", Verdict.MEMORY, "MemoryError"),
    "too much text": (
        "def add(a, b):\n    while True: print('x' * 9999)",
        Verdict.OUTPUT,
        "printed more than 10 MiB",
    ),
    "too large a value": ("def add(a, b): return 'x' * 20_000_000", Verdict.OUTPUT, "MiB"),
    "a syntax error": ("def add(a, b) return", Verdict.COMPILE, "SyntaxError: expected ':'"),
    "a null byte": ("def add(a, b):\x00", Verdict.COMPILE, "null bytes"),
    "an unasked reply": (
        "import os\nos.write(3, b'\\0\\0\\0\\2[]')\ndef add(a, b): pass",
        Verdict.FORBIDDEN,
        "reply",
    ),
    "no entry point": ("def ad(a, b): return a + b", Verdict.NO_CODE, "entry point"),
    "an empty program": ("", Verdict.NO_CODE, "entry point"),
    "no program": (None, Verdict.NO_CODE, "no program"),
}


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    return dict(
        zip(
            CASES, judge_all([add(program) for program, _, _ in CASES.values()], QUICK), strict=True
        )
    )


@pytest.mark.parametrize("name", CASES)
def test_a_program_gets_the_verdict_it_deserves_and_the_reason(
    name: str, executions: dict[str, Execution]
) -> None:
    _, verdict, detail = CASES[name]
    assert executions[name].verdict is verdict, executions[name]
    assert detail in executions[name].detail
    assert executions[name].total == 3


def test_what_it_printed_and_used_stands_beside_the_verdict(
    executions: dict[str, Execution],
) -> None:
    printing = executions["a right program that prints"]
    assert printing.output == "hello\n"
    assert 0 < printing.cpu_seconds < 0.4
    assert 1 < printing.memory_mb < 128
    assert 0 < printing.wall_seconds < 2
    assert 0.4 <= executions["a loop"].cpu_seconds < 4
    assert len(executions["too much text"].output) == 64 * 1024


def test_the_first_check_that_fails_ends_the_job_unless_every_check_is_wanted() -> None:
    job = add("def add(a, b): return b and [1, 2][:a]")
    early, full = judge_all([job]), judge_all([job], stop_early=False)
    assert (early[0].verdict, early[0].passed, early[0].total) == (Verdict.WRONG, 0, 3)
    assert (full[0].verdict, full[0].passed, full[0].total) == (Verdict.WRONG, 1, 3)


def test_checks_that_held_before_a_loop_are_counted() -> None:
    execution = judge_all(
        [add("def add(a, b):\n    while a == [1]: pass\n    return a + b")], QUICK, stop_early=False
    )[0]
    assert (execution.verdict, execution.passed) == (Verdict.TIMEOUT, 1)


def test_a_check_that_swallows_everything_cannot_hide_a_death() -> None:
    hiding = task("f", "try:\n    f()\nexcept BaseException:\n    pass")
    assert judge_all([Job(hiding, "import os\ndef f(): os._exit(0)")])[0].verdict is Verdict.ERROR
    assert judge_all([Job(hiding, "def f(): raise SystemExit")])[0].verdict is Verdict.ERROR
    assert judge_all([Job(hiding, "def f(): 1/0")])[0].verdict is Verdict.PASS


def test_a_check_may_expect_an_exception_by_its_built_in_class() -> None:
    expecting = task(
        "f",
        "try:\n    f(-1)\n    assert False\nexcept ValueError as error:\n    assert 'low' in"
        " str(error)",
    )
    programs = [
        "def f(n): raise ValueError('too low')",
        "class Low(ValueError): pass\ndef f(n): raise Low('too low')",
        "def f(n): raise TypeError('too low')",
        "def f(n): return 0",
    ]
    verdicts = [
        execution.verdict
        for execution in judge_all([Job(expecting, program) for program in programs])
    ]
    assert verdicts == [Verdict.PASS, Verdict.PASS, Verdict.ERROR, Verdict.WRONG]


@pytest.mark.parametrize(
    ("program", "held"),
    [
        (
            "raise ValueError('too low')",
            "type(e) is ValueError and str(e) == 'too low' and e.args == ('too low',)",
        ),
        ("raise KeyError('k')", "type(e) is KeyError and e.args == ('k',)"),
        ("raise KeyError(('k', 1))", "type(e) is KeyError and 'k' in str(e)"),
        ("raise FileNotFoundError(2, 'no', 'f')", "str(e) == \"[Errno 2] no: 'f'\""),
        ("raise ValueError(10**5000)", "type(e) is ValueError"),
        ("raise ValueError(float('nan'))", "str(e) == 'nan'"),
        (
            "raise Low(7)",
            "type(e).__name__ == 'Low' and str(e) == 'low: 7' and isinstance(e, ValueError)",
        ),
        ("raise AssertionError('x')", "type(e) is AssertionError and str(e) == 'x'"),
    ],
)
def test_an_exception_arrives_with_its_own_text_and_arguments(program: str, held: str) -> None:
    low = "class Low(ValueError):\n    def __str__(self): return f'low: {self.args[0]}'\n"
    check = f"try:\n    f()\nexcept Exception as error:\n    e = error\nassert {held}"
    execution = judge_all([Job(task("f", check), f"{low}def f(): {program}")])[0]
    assert execution.verdict is Verdict.PASS, execution


def test_that_a_program_raises_what_a_check_raises_itself_is_noted() -> None:
    expecting = task(
        "f", "try:\n    f()\nexcept (AssertionError, NameError, StopIteration):\n    pass"
    )
    programs = [
        f"def f(): raise {name}" for name in ("AssertionError", "NameError", "StopIteration")
    ]
    executions = judge_all([Job(expecting, program) for program in programs])
    assert {(seen.verdict, seen.forgeable) for seen in executions} == {(Verdict.PASS, True)}


def test_a_right_program_that_says_something_unasked_at_the_end_does_not_pass() -> None:
    late = (
        "import os, threading\ndef add(a, b): threading.Timer(0.02, os.write, (3,"
        " b'\\0\\0\\0\\2[]')).start()"
    )
    slow = task("add", "add(0, 0)", "import time; time.sleep(0.3)")
    assert judge_all([Job(slow, late)])[0].verdict is Verdict.FORBIDDEN


def packed(report: WorkerReport, mark: bytes = DONE) -> bytes:
    return mark + json.dumps(report._asdict()).encode()


HELD = WorkerReport([Outcome("held")])
GONE = packed(HELD._replace(failure=Outcome("hung_up")), HUNG_UP)
RECORD = RunRecord(True, packed(HELD), None, True, 9, 0.1, 20.0, 0.2)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"alive": False}, Verdict.INFRA),
        ({"alive": False, "status": 0}, Verdict.ERROR),
        ({"stopped": Ended.LOST, "report": None}, Verdict.INFRA),
        ({"stopped": Ended.CPU}, Verdict.TIMEOUT),
        ({"stopped": Ended.WALL}, Verdict.TIMEOUT),
        ({"stopped": Ended.PRINTED}, Verdict.OUTPUT),
        ({"cpu_seconds": 6.0}, Verdict.TIMEOUT),
        ({"report": None}, Verdict.INFRA),
        ({"memory_mb": 512 + 64 + 512.0}, Verdict.PASS),
        ({"memory_mb": 512 + 64 + 513.0}, Verdict.MEMORY),
        ({"report": packed(HELD._replace(checks=[]))}, Verdict.UNJUDGED),
        ({"report": DONE + b"[]"}, Verdict.UNJUDGED),
        (
            {"report": packed(HELD._replace(failure=Outcome("forbidden", "x")))},
            Verdict.FORBIDDEN,
        ),
        ({"report": GONE}, Verdict.FORBIDDEN),
        ({"report": GONE, "alive": False}, Verdict.INFRA),
        (
            {"report": GONE, "alive": False, "was_killed": True},
            Verdict.ERROR,
        ),
        (
            {
                "report": GONE,
                "alive": False,
                "was_killed": False,
            },
            Verdict.INFRA,
        ),
        ({"report": GONE, "status": 0}, Verdict.ERROR),
        (
            {"report": GONE, "alive": False, "memory_mb": 500.0},
            Verdict.MEMORY,
        ),
        ({"report": GONE, "alive": False, "status": 11}, Verdict.ERROR),
        (
            {"report": GONE, "alive": False, "status": 24},
            Verdict.ERROR,
        ),
        (
            {"report": GONE, "alive": False, "status": 24, "cpu_seconds": 42.0},
            Verdict.TIMEOUT,
        ),
    ],
)
def test_the_evidence_decides(changed: dict[str, Any], verdict: Verdict) -> None:
    record = replace(RECORD, **changed)
    result = Result(*ending(record, Limits()), report=record.report or b"")
    assert decide(result).verdict is verdict


def test_a_program_that_dies_after_its_last_call_does_not_pass() -> None:
    dying = "import os, threading\ndef add(a, b): threading.Timer(0.02, os._exit, (0,)).start()"
    slow = task("add", "add(0, 0)", "import time; time.sleep(0.3)")
    assert judge_all([Job(slow, dying)])[0].verdict is Verdict.ERROR


def test_what_right_programs_do_with_the_machine_is_allowed() -> None:
    doing = task("f", "assert f(20) == 190")
    programs = [
        (
            "import os\ndef f(n):\n    with open(os.devnull, 'w') as null: print('x', file=null)\n "
            "   return 190"
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor\nimport threading\ndef f(n):\n   "
            " barrier = threading.Barrier(n)\n    def g(i):\n        barrier.wait()\n        return"
            " i\n    with ThreadPoolExecutor(n) as pool: return sum(pool.map(g, range(n)))"
        ),
    ]
    assert [seen.verdict for seen in judge_all([Job(doing, program) for program in programs])] == [
        Verdict.PASS
    ] * 2


def test_the_main_block_does_not_run() -> None:
    assert (
        judge_all([add(f"{RIGHT}\nif __name__ == '__main__':\n    1/0")])[0].verdict is Verdict.PASS
    )


def test_setup_that_fails_is_no_fault_of_the_program() -> None:
    broken = task("f", "assert f() == one", setup="import no_such_module\none = 1")
    execution = judge_all([Job(broken, "def f(): return 1")])[0]
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)
    assert "setup" in execution.detail


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(x): return x", Verdict.PASS),
        ("def f(x) return x", Verdict.COMPILE),
        ("def g(x): return x", Verdict.NO_CODE),
        ("1 / 0", Verdict.ERROR),
        ("import os\nos._exit(0)", Verdict.ERROR),
        ("import os, time\nos.close(3)\ntime.sleep(9)", Verdict.FORBIDDEN),
        ("def f(x): raise ValueError", Verdict.ERROR),
        ("def f(x): return 2", Verdict.WRONG),
    ],
)
def test_a_program_cannot_blame_the_setup_for_its_own_failure(
    program: str, verdict: Verdict
) -> None:
    asking = task("f", "assert candidate(1) == 1", setup="candidate = f\nassert f(1) == 1")
    assert judge_all([Job(asking, program)])[0].verdict is verdict


def test_a_program_cannot_lay_the_setups_names_open_by_failing_in_it() -> None:
    early = task("f", "assert f(2) == expected", setup="first = f(1)\nexpected = 4")
    failing = "expected = 0\ndef f(x):\n    if x == 1: raise ValueError\n    return 0"
    assert judge_all([Job(early, failing)])[0].verdict is Verdict.ERROR


def test_a_check_that_passes_what_cannot_cross_is_no_fault_of_the_program_nor_of_the_machine() -> (
    None
):
    passing = task("f", "assert f(object(), [1]) == [2]")
    executions = judge_all([Job(passing, "def f(g, x): return [2]")] * 21)
    assert {execution.cause for execution in executions} == {Cause.CARRY}
    assert {execution.verdict for execution in executions} == {Verdict.UNJUDGED}


def test_what_the_program_returned_can_be_sent_back() -> None:
    round_trip = task("f", "assert g(f(1)) == 1")
    program = "class A: pass\ndef f(x): return A()\ndef g(x): return 1"
    assert judge_all([Job(round_trip, program)])[0].verdict is Verdict.PASS


def test_the_entry_point_is_the_candidates_even_where_setup_has_one() -> None:
    shadowed = task("f", "assert f() == help_()", setup="def f(): return 0\ndef help_(): return 2")
    programs = ["def f(): return 2", "def f(): return 0\ndef help_(): return 0"]
    verdicts = [
        execution.verdict
        for execution in judge_all([Job(shadowed, program) for program in programs])
    ]
    assert verdicts == [Verdict.PASS, Verdict.WRONG]


def test_a_task_without_checks_is_refused() -> None:
    (refused,) = judge_all([Job(task("f"), "def f(): pass")])
    assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


def test_a_limit_that_is_not_positive_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"limits\.memory_mb is 0"):
        Limits(memory_mb=0)


def test_numpy_values_cross_as_numpy_values() -> None:
    pytest.importorskip("numpy")
    job = Job(
        task(
            "f",
            "import numpy as np\nassert f(np.array([1.5, 2])).dtype == np.float64 and"
            " (f(np.ones(2)) == 2).all()",
        ),
        "import numpy\ndef f(a): return a * numpy.float64(2)",
    )
    assert judge_all([job])[0].verdict is Verdict.PASS
    assert ADD.checks
