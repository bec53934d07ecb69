"""A test that asks the program nothing proves nothing: it is the task's fault, never a verdict."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from assay.judge import Job
from assay.types import Execution, Task, TestFunctions, Verdict
from tests.judge.jobs import task
from tests.judge.opened import judge_all

DOUBLE = "def f(x): return 2 * x\nLIMIT = 3\n"
NEVER_CALLED = "def go():\n    assert f(1) == 2\n"
AT_FAULT = {
    "a function that nobody calls": task("f", NEVER_CALLED),
    "an assert of nothing": task("f", "assert f(1) == 2", "assert True"),
    "a loop over nothing": task("f", "for x in []: assert f(x) == 2 * x"),
    "a program that is there but not called": task("f", "assert callable(f)"),
    "a module that is not installed": task(
        "f", "import no_such_module\nassert f(1) == no_such_module.x"
    ),
    "an import that both tests make": task(
        "f", "import math\nassert f(1) == 2", f"import math\n{NEVER_CALLED}"
    ),
}
ASKS = {
    "a call": task("f", "assert f(1) == 2"),
    "a read of a constant": task("f", "assert LIMIT == 3"),
    "what an earlier test got": task("f", "x = f(1)", "assert x == 2", "x += 1", "assert x == 3"),
    "what an earlier test got, used in a function": task(
        "f", "x = f(1)", "def go():\n    assert x == 2\ngo()"
    ),
    "a name from the program": task("f", "from solution import f as g", "assert g(1) == 2"),
    "an import of the program": task("f", "import candidate\nassert candidate.f(1) == 2"),
    "all names of the program": task("f", "from solution import *\nassert f(LIMIT) == 6"),
}


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    tasks: dict[str, Task] = AT_FAULT | ASKS
    jobs = [Job(one, DOUBLE) for one in tasks.values()]
    return dict(zip(tasks, judge_all(jobs, stop_early=False), strict=True))


@pytest.mark.parametrize("name", AT_FAULT)
def test_a_test_that_asks_nothing_is_the_tasks_fault(
    name: str, executions: dict[str, Execution]
) -> None:
    assert executions[name].verdict is Verdict.UNJUDGED, executions[name]
    assert "this test asks nothing of the program: " in executions[name].detail


@pytest.mark.parametrize("name", ASKS)
def test_a_test_that_calls_imports_or_reads_something_counts(
    name: str, executions: dict[str, Execution]
) -> None:
    assert executions[name].verdict is Verdict.PASS, executions[name]


def test_a_wrong_program_is_wrong_in_a_test_that_uses_an_earlier_answer() -> None:
    built = task("f", "x = f(1)", "assert x == 2")
    assert judge_all([Job(built, "def f(x): return 0")])[0].verdict is Verdict.WRONG


def test_a_name_that_the_program_lacks_is_the_programs_fault() -> None:
    imports = task("f", "from solution import f, g\nassert g(1) == 2")
    (execution,) = judge_all([Job(imports, DOUBLE)])
    assert execution.verdict is Verdict.WRONG
    assert "cannot import name 'g'" in execution.detail


def test_a_call_whose_arguments_cannot_be_sent_is_no_silence() -> None:
    setup = "x = make()\n"
    passes_it_on = task("f", "assert f(x)", setup=setup, reference="def f(x): return True")
    program = "class C: pass\ndef make(): return C()\ndef f(x): return True"
    (execution,) = judge_all([Job(passes_it_on, program)])
    assert "asks nothing" not in execution.detail


def test_such_a_task_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        judge_all([Job(AT_FAULT["an assert of nothing"], f"{DOUBLE}#{n}") for n in range(3)])
    assert [record.getMessage() for record in caplog.records] == [
        "task f cannot be judged (test): this test asks nothing of the program: assert True"
    ]


CLASS_TESTS = {
    "an assert": task("Box", "assert Box().size() == 1"),
    "a test function": task("Box", "def test_box():\n    assert Box().size() == 1\ntest_box()"),
    "a module": replace(
        task("Box"), checks=(TestFunctions("box = Box()\ndef test():\n    assert box.size() == 1"),)
    ),
    "an import": replace(
        task("f"),
        checks=(TestFunctions("from solution import Box\ndef test():\n    assert Box().x == 1"),),
    ),
}
NO_CLASSES = (
    "Box = 5", "Box = None", "Box = list", "Box = len", "import sys as Box",
    "import sys\nBox = sys.stdout", "class function: pass\nBox = function()",
)  # fmt: skip


@pytest.mark.parametrize("name", CLASS_TESTS)
def test_a_program_with_data_in_the_place_of_a_class_is_at_fault_itself(name: str) -> None:
    programs = [f"{program}\ndef f(): pass" for program in NO_CLASSES]
    done = judge_all([Job(CLASS_TESTS[name], program) for program in programs])
    assert {one.verdict for one in done} <= {Verdict.WRONG, Verdict.ERROR}, done
