"""A task whose own reference fails proves nothing of a program that fails too."""

from __future__ import annotations

from assay.extract.thoughts import first_thought
from assay.judge import Job
from assay.tasks.tolerances import stated_tolerance
from assay.types import Cause, Exchange, Task, Verdict
from tests.judge.opened import judge_all


def test_a_program_that_reads_and_prints_is_not_wrong_where_the_reference_is() -> None:
    tasks = [Task(printed, "", (Exchange("1", "2"),), "", reference=f"print({printed})")
             for printed in ("3", "2")]  # fmt: skip
    jobs = [Job(task, program) for task in tasks for program in ("print(4)", "print(2)")]
    ends = [(run.verdict, run.cause) for run in judge_all(jobs)]
    assert ends[0] == (Verdict.UNJUDGED, Cause.REFERENCE)
    assert [verdict for verdict, _ in ends[1:]] == [Verdict.PASS, Verdict.WRONG, Verdict.PASS]


def test_long_replies_and_prompts_are_read_in_linear_time() -> None:
    """The first would take minutes in quadratic time."""
    assert first_thought(" " * 400_000 + "<think>a</think>") == "a"
    assert stated_tolerance("within " * 1_000) is None
