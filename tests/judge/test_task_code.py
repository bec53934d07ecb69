"""What a task's text shows of its code. A worker that has run such code takes no other job."""

from __future__ import annotations

import pytest

from assay.judge import Job
from assay.judge.task_code import looks_at_identity
from assay.types import Check, Task, TestFunctions, Verdict
from tests.judge.jobs import judged_in_turn


@pytest.mark.parametrize(
    ("source", "looks"),
    [
        ("assert f(x) is x", False),  # it is asked when it is run
        ("assert 1 < 2 is not f(x)", True),
        ("assert id(f(x)) == id(x)", False),
        ("operator.is_(f(x), x)", True),
        ("t.assertIs(f(x), x)", True),
        ("eval('f(x) is x')", True),
        ("assertIｓ(f(x), x)", True),  # noqa: RUF001  Python reads it as assertIs
        ("assert f(x) is None", False),
        ("assert f(1) is not True", False),
        ('"""What is a word?"""\nassert f(x) == x  # is it', False),
        ("assert f(", False),
    ],
)
def test_only_code_that_compares_identity_unnoticed_looks_at_it(source: str, looks: bool) -> None:
    assert looks_at_identity(source) is looks


HOSTILE = """
from assay.judge.kinds import asserts
asserts.run_check = asserts.run_rows = lambda *_, held=asserts.Outcome("held"): held
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
