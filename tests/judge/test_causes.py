"""Whose doing a verdict is. What is wrong with a task ends no run, is reported once, and is never
the program's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from _pytest.mark import ParameterSet

from assay.judge import Job, base, judge_all, runner, verdict
from assay.judge.verdict import CircuitBreaker
from assay.judge.worker_messages import Outcome, WorkerReport
from assay.sandbox.limits import Limits
from assay.sandbox.program import Program, Result
from assay.sandbox.supervisor_client import Sandbox
from assay.types import (
    Answer,
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

RIGHT = "def f(x):\n    return x + 1\n"
PRINTS = "print(int(input()) + 1)\n"
OK = (Check("assert f(1) == 2"),)
LIMITS = Limits(cpu_seconds=0.3, wall_seconds=1)


def row(
    *checks: AnyCheck, entry_point: str = "f", reference: str | None = None, checker: str = "",
    setup: str = "", language: str = "python",
) -> Task:  # fmt: skip
    return Task(
        "row", "", checks, entry_point, reference=reference, checker=checker, setup=setup,
        language=language,
    )  # fmt: skip


reads = partial(row, Exchange("1", "2"), entry_point="")
BAD: dict[str, tuple[Task, Cause]] = {
    "its setup raises": (row(*OK, setup="1 / 0"), Cause.TASK),
    "its setup exits": (row(*OK, setup="import os\nos._exit(0)"), Cause.TEST),
    "its setup exits, with a reference": (
        row(*OK, setup="import os\nos._exit(0)", reference=RIGHT), Cause.TEST),
    "its setup imports what is absent": (row(*OK, setup="import no_such_module"), Cause.TASK),
    "its test imports what is absent": (row(Check("import no_such_module")), Cause.TEST),
    "its reference fails": (
        row(Check("assert f(1) == 3"), reference="def f(x): return x"), Cause.REFERENCE),
    "its reference gives no answers": (
        row(Call("[1]"), reference="def f(x): return 1 / 0"), Cause.REFERENCE),
    "its answers are too large": (
        row(Call("[1]"), reference="def f(x): return 'x' * (80 << 20)"), Cause.REFERENCE),
    "its test hangs": (row(Check("f(1)\nwhile True: pass"), reference=RIGHT), Cause.REFERENCE),
    "its test exits before it asks": (row(Check("import os\nos._exit(3)\nf(1)")), Cause.TEST),
    "its test closes the channel before it asks": (
        row(Check("import os, time\nos.close(3)\ntime.sleep(1)\nf(1)")), Cause.TEST),
    "its test writes over the report before it asks": (
        row(Check("import os\nos.write(3, b'\\0\\0\\0\\2{]')\nf(1)")), Cause.TEST),
    "its setup runs out of memory": (
        row(*OK, setup="x = []\nwhile True: x.append(bytes(1 << 24))"), Cause.TASK),
    **{
        name: (row(Check(f"f(1)\n{source}"), reference=RIGHT), Cause.REFERENCE)
        for name, source in {
            "its test exits": "import os\nos._exit(3)",
            "its test aborts": "import os\nos.abort()",
            "its test crashes": "import ctypes\nctypes.string_at(0)",
            "its test closes the channel": "import os, time\nos.close(3)\ntime.sleep(1)",
            "its test writes over the report": "import os\nos.write(3, b'\\0\\0\\0\\2{]')",
        }.items()
    },
    "its test passes an object": (row(Check("f(object())")), Cause.CARRY),
    "its test has a fixture that is absent": (
        row(TestFunctions("def test_a(absent):\n    assert f(1) == 2")), Cause.TASK),
    "its checker raises": (
        row(Call("[1]", "2"), checker="def check(*_): 1 / 0", reference=RIGHT), Cause.REFERENCE),
    "its checker is no Python": (row(Call("[1]", "2"), checker="def check("), Cause.TASK),
    "the checker of its output is no Python": (reads(checker="def check("), Cause.TASK),
    "the checker of its output exits": (
        reads(checker="def check(*_):\n    import os\n    os._exit(0)", reference=f"{PRINTS}# ok"),
        Cause.REFERENCE),
    "the checker of its output exits as it is loaded": (
        reads(checker="import os\nos._exit(0)"), Cause.TASK),
    "the checker of its output raises": (
        reads(checker="def check(*_): 1 / 0", reference=f"{PRINTS}# right"), Cause.REFERENCE),
    "it has no checks": (row(), Cause.TASK),
    "its language is unknown": (row(*OK, language="klingon"), Cause.TASK),
    "only Python has its arguments": (
        row(Call('[{"set":[1]}]', "2"), language="javascript"), Cause.TASK),
    "its value is no number": (row(Call("[1]", "NaN"), language="javascript"), Cause.TASK),
    "its test is no text": (row(Check(b"assert f(1) == 2")), Cause.TASK),  # type: ignore[arg-type]
    "its check is none": (row("assert f(1) == 2"), Cause.TASK),  # type: ignore[arg-type]
    "its expected value is a list": (row(Call("[1]", [2])), Cause.TASK),  # type: ignore[arg-type]
    "its input is no text": (
        row(Exchange(b"1", "2"), entry_point=""), Cause.TASK),  # type: ignore[arg-type]
    "its reference is a number": (row(*OK, reference=5), Cause.TASK),  # type: ignore[arg-type]
    "its checks are none": (Task("row", "", None, "f"), Cause.TASK),  # type: ignore[arg-type]
    "its arguments are no JSON": (row(Call("[", "2")), Cause.TASK),
    "its answer is empty": (row(Answer(" "), entry_point=""), Cause.TASK),
    "it mixes checks": (row(*OK, Exchange("1", "2")), Cause.TASK),
}  # fmt: skip


def program_for(task: Task, number: int) -> str:
    """A program that would be right, like no other."""
    return f"{RIGHT if task.entry_point else PRINTS}# {number}"


def marked(cases: Iterable[str]) -> list[ParameterSet]:
    """The cases, of which those that hang take seconds."""
    return [
        pytest.param(name, marks=[pytest.mark.long] if "hangs" in name else []) for name in cases
    ]


@pytest.mark.parametrize("name", marked(BAD))
def test_a_bad_row_ends_no_run_and_is_reported_once(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(base, "CircuitBreaker", partial(CircuitBreaker, tolerated=0))
    task, cause = BAD[name]
    if name == "its reference fails":  # for a program that fails, as all but a lucky one do
        jobs = [Job(task, f"def f(x): return {-number}") for number in range(3)]
    else:
        jobs = [Job(task, program_for(task, number)) for number in range(3)]
    executions = judge_all(jobs, LIMITS, slots=1)
    assert [(run.verdict, run.cause) for run in executions] == [(Verdict.UNJUDGED, cause)] * 3
    (report,) = [record.getMessage() for record in caplog.records]
    assert f"task row cannot be judged ({cause}): " in report


CHOSEN: dict[str, tuple[Task, str]] = {
    "the test exits where it is wrong": (
        row(Check("import os\nif f(1) != 2: os._exit(1)")), "def f(x): return 3"),
    "the test aborts where it is wrong": (
        row(Check("import os\nif f(1) != 2: os.abort()")), "def f(x): return 3"),
    "the test writes over the report": (
        row(Check("import os\nif f(1) != 2: os.write(3, b'\\0\\0\\0\\2{]')")),
        "def f(x): return 3"),
    "the test passes an object of its own": (
        row(Check("y = f(1)\nif y != 2: f(object())")), "def f(x): return 3"),
    "the checker exits": (
        reads(checker="def check(i, o, e):\n    import os\n    o == '2\\n' or os._exit(0)\n"
              "    return True"), "print(3)"),
    "the checker hangs": (
        reads(checker="def check(i, o, e):\n    while o != '2\\n': pass\n    return True"),
        "print(3)"),
}  # fmt: skip


NEEDS_REFERENCE = "the test passes an object of its own"
"""Where no reference shows that the test can be judged, none is."""


@pytest.mark.parametrize("has_reference", [False, True])
@pytest.mark.parametrize("name", marked(CHOSEN))
def test_a_program_cannot_choose_to_be_unjudged(name: str, has_reference: bool) -> None:
    task, program = CHOSEN[name]
    right = RIGHT if task.entry_point else PRINTS
    if has_reference:
        task = replace(task, reference=right)
    elif name == NEEDS_REFERENCE:
        return
    jobs = [Job(task, text) for text in (program, f"{right}# too")]
    wrong, passes = judge_all(jobs, LIMITS, slots=1)
    cause = Cause.CHECKER if name.startswith("the checker") else Cause.PROGRAM
    assert (wrong.verdict, wrong.cause) == (Verdict.WRONG, cause), wrong
    assert passes.verdict is Verdict.PASS, passes


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        (Verdict.WRONG, Cause.MACHINE),
        (Verdict.INFRA, Cause.TASK),
        (Verdict.UNJUDGED, Cause.PROGRAM),
        (Verdict.PASS, Cause.CARRY),
    ],
)
def test_a_verdict_that_contradicts_its_cause_cannot_be_made(
    verdict: Verdict, cause: Cause
) -> None:
    with pytest.raises(ValueError, match="has not the cause"):
        Execution(verdict, cause=cause)


RAISES = """class Own(ValueError): pass
class Thing: pass
def f(x):
    if x < 0: raise Own('no')
    return Thing()
"""
OWN_CLASSES = {
    "assertRaises": "self.assertRaises(Own, f, -1)",
    "assertRaises as a block": "with self.assertRaises((Own, KeyError)): f(-1)",
    "assertRaisesRegex": "self.assertRaisesRegex(Own, 'no', f, -1)",
    "pytest.raises": "pytest.raises(Own, f, -1)",
    "except": "try: f(-1)\n        except Own: return\n        assert False",
    "assertIsInstance": "self.assertIsInstance(f(1), Thing)",
    "issubclass": "assert issubclass(Own, ValueError) and isinstance(f(1), Thing)",
}


@pytest.mark.parametrize("reference", [None, RAISES])
@pytest.mark.parametrize("imported", ["", "from solution import Own, Thing, f"])
def test_a_test_may_name_the_programs_own_classes(imported: str, reference: str | None) -> None:
    wrong = "class Own(Exception): pass\nclass Thing: pass\ndef f(x): return 3"
    jobs = [
        Job(row(TestFunctions(
            f"import pytest, unittest\n{imported}\nclass TestF(unittest.TestCase):\n"
            f"    def test_f(self):\n        {source}"), reference=reference), program)
        for source in OWN_CLASSES.values() for program in (f"{RAISES}# right", wrong)
    ]  # fmt: skip
    found = [run.verdict for run in judge_all(jobs)]
    assert dict(zip(OWN_CLASSES, found[::2], strict=True)) == dict.fromkeys(OWN_CLASSES, "pass")
    unproven = {Verdict.UNJUDGED} if reference is None else set()
    assert set(found[1::2]) <= {Verdict.WRONG, Verdict.ERROR} | unproven


VARIED = [
    *(Job(task, program_for(task, 0)) for name, (task, _) in BAD.items() if "hangs" not in name),
    *(Job(task, text) for name, (task, text) in CHOSEN.items() if "hangs" not in name),
    *(
        Job(row(*OK, reference=reference), text)
        for reference in (None, RIGHT)
        for text in (
            RIGHT, "def f(x): return 3", "def f(x: pass", "g = 1", "def f(x): 1 / 0",
            "def f(x): raise SystemExit(0)", "import os\nos._exit(0)",
            "def f(x):\n    while True: pass", "def f(x): return ' ' * (1 << 33)",
            "def f(x): print(' ' * (1 << 25))", "import os\nos.write(3, b'\\0\\0\\0\\1[')",
        )
    ),
    Job(row(Check("x = [2, 1]\nf(x)\nassert x == [1, 2]"), reference="def f(x): x.sort()"),
        "def f(x):\n    x.sort()"),
]  # fmt: skip


def decisions(jobs: Sequence[Job], monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is decided of each job, and what the circuit breaker is told."""
    told: list[bool] = []
    monkeypatch.setattr(CircuitBreaker, "note", lambda self, failed, _="": told.append(failed))
    runs = judge_all(jobs, LIMITS, slots=1)
    kept = [
        (run.verdict, run.cause, run.passed, run.total, run.forgeable, run.exit_status,
         [(test.name, test.outcome) for test in run.tests])
        for run in runs
    ]  # fmt: skip
    return [*kept, (sorted(told),)]


@pytest.mark.long
def test_no_decision_rests_on_the_words_of_a_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    as_usual = decisions(VARIED, monkeypatch)
    post_init, parse_report, run = Execution.__post_init__, verdict.parse_report, Sandbox.run

    def without_words(execution: Execution) -> None:
        post_init(execution)
        object.__setattr__(execution, "detail", "x")

    def report_without_words(frame: bytes) -> WorkerReport | None:
        if (report := parse_report(frame)) is None:
            return None
        checks = [Outcome(check.how, "x") for check in report.checks]
        failure = report.failure and Outcome(report.failure.how, "x")
        return report._replace(
            checks=checks, failure=failure, setup_error="x" * bool(report.setup_error)
        )

    async def run_without_words(sandbox: Sandbox, program: Program) -> Result:
        return (await run(sandbox, program))._replace(detail="x")

    monkeypatch.setattr(Execution, "__post_init__", without_words)
    for module in (verdict, runner):
        monkeypatch.setattr(module, "parse_report", report_without_words)
    monkeypatch.setattr(Sandbox, "run", run_without_words)
    assert decisions(VARIED, monkeypatch) == as_usual
    assert len({str(kept[0]) for kept in as_usual}) >= 8


CARRIED = {
    "the absolute path of the program's file": (
        "assert open(f()).read() == 'hi'",
        "import os\ndef f():\n    open('o', 'w').write('hi')\n    return os.path.abspath('o')",
        "import os\ndef f(): return os.path.abspath('o')",
    ),
    "a Path of the program's": (
        "assert f().read_text() == 'hi'",
        "from pathlib import Path\ndef f():\n    Path('o').write_text('hi')\n"
        "    return Path('o').resolve()",
        "from pathlib import Path\ndef f(): return Path('o')",
    ),
    "a database that the test holds open": (
        "import sqlite3\nc = sqlite3.connect('d')\nc.execute('create table t(a)')\nc.commit()\n"
        "f('d')\nassert c.execute('select a from t').fetchall() == [(1,)]",
        "import sqlite3\ndef f(p):\n    c = sqlite3.connect(p)\n"
        "    c.execute('insert into t values (1)')\n    c.commit()",
        "def f(p): pass",
    ),
    "a file that the test holds open": (
        "open('i', 'w').close()\nh = open('i')\nf('i')\nassert h.read() == 'hi'",
        "def f(p): open(p, 'w').write('hi')",
        "def f(p): pass",
    ),
    "a file that the test adds to": (
        "open('i', 'w').write('a')\nf('i')\nassert open('i').read() == 'ab'",
        "def f(p): open(p, 'a').write('b')",
        "def f(p): open(p, 'w').write('b')",
    ),
}
"""A test, a right program and a wrong one."""


@pytest.mark.parametrize("reference", [False, True])
def test_a_file_that_crosses_is_judged(reference: bool) -> None:
    jobs = [
        Job(row(Check(test), reference=right if reference else None), f"{program}\n# here")
        for test, right, wrong in CARRIED.values()
        for program in (right, wrong)
    ]
    found = [run.verdict for run in judge_all(jobs)]
    assert dict(zip(CARRIED, found[::2], strict=True)) == dict.fromkeys(CARRIED, "pass")
    assert dict(zip(CARRIED, found[1::2], strict=True)) == dict.fromkeys(CARRIED, "wrong")


STAYS = {
    "a socket": "import socket\na, b = socket.socketpair()\nf(a)\nassert b.recv(2) == b'hi'",
    "a connection": "import sqlite3\nc = sqlite3.connect(':memory:')\nf(c)\nassert c.total_changes",
    "an open file": "h = open('i', 'w')\nf(h)\nassert open('i').read() == 'hi'",
    "a reader": "import csv\nassert f(csv.reader(['a'])) == [['a']]",
    "a folder elsewhere": "import os, tempfile\nwith tempfile.TemporaryDirectory() as d:\n"
    "    f(os.path.join(d, 'o'))\n    assert os.listdir(d) == ['o']",
}
USES = """def f(x):
    if isinstance(x, str): open(x, 'w').close()
    elif hasattr(x, 'send'): x.send(b'hi')
    elif hasattr(x, 'execute'): x.execute('create table t(a)')
    elif hasattr(x, 'write'): x.write('hi')
    return list(x)
"""


def test_what_cannot_be_carried_is_unjudged_and_not_wrong() -> None:
    runs = judge_all([Job(row(Check(test)), USES) for test in STAYS.values()])
    assert dict(zip(STAYS, (run.cause for run in runs), strict=True)) == dict.fromkeys(
        STAYS, Cause.CARRY
    )


@pytest.mark.parametrize(
    ("test", "reference", "words"),
    [
        ("assert f() == 2", "def f(): return 1", "gives 1"),
        ("assert f()['a'] == 1", "class T: pass\ndef f(): return T()",
         "'T' object is not subscriptable"),
        ("assert f().absent", "import math\ndef f(): return math", "'absent'"),
        ("assert len(f()) == 1", "class T: pass\ndef f(): return T()", "type 'T' has no len()"),
    ],
)  # fmt: skip
def test_a_reference_that_fails_says_what_failed_and_nothing_of_the_judges_inside(
    test: str, reference: str, words: str
) -> None:
    (run,) = judge_all([Job(row(Check(test), reference=reference), "def f(): return 3")])
    assert run.cause is Cause.REFERENCE
    assert words in run.detail
    assert "Opaque" not in run.detail
