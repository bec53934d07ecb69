"""Repair: what the model sees of a failure, what it does not see, and when it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.environments import visible
from assay.environments.repair import describe_failure
from assay.judge import Job, Judge
from assay.judge.kinds.asserts import LONGEST
from assay.types import Call, Check, Exchange, Execution, Task, Verdict
from tests.judge.opened import with_judge
from tests.rollout.talks import ADD, FLAT, RIGHT, WRONG, plain, talk

SEEN = Check("assert f(1, 2) == 3", hidden=False)


def test_the_failing_visible_check_is_shown_with_what_came_out_and_the_program_may_be_mended() -> (
    None
):
    rollout, asked = talk(WRONG, RIGHT)
    assert [turn.observation for turn in rollout.turns] == [
        f"That fails: {SEEN.source}: gives -1",
        "",
    ]
    assert rollout.passed
    shown = plain().text(asked[1].prompt)
    assert shown == f"{ADD.prompt}{WRONG}# That fails: {SEEN.source}: gives -1\n{ADD.prompt}"


def test_an_input_that_is_no_text_is_shown_without_what_no_tokenizer_takes() -> None:
    task = Task("bytes", "# print 1\n", (Exchange("\udcff", "1", hidden=False),), "")
    rollout, asked = talk("print(2)\n", "print(1)\n", task=task)
    assert rollout.turns[0].observation.endswith("not '1', where the input is\n?")
    assert len(asked) == 2


def test_it_ends_when_no_visible_check_fails_and_a_hidden_failure_is_not_shown() -> None:
    rollout, asked = talk(FLAT, RIGHT)
    assert len(asked) == 1
    assert rollout.turns[0].observation == ""
    assert rollout.execution
    assert (rollout.execution.verdict, rollout.execution.passed, rollout.execution.total) == (
        Verdict.WRONG,
        1,
        2,
    )


def test_nothing_of_a_hidden_check_is_in_any_prompt() -> None:
    task = replace(ADD, checks=(SEEN, Check("assert f(987, 654) == 1641")))
    rollout, asked = talk(WRONG, WRONG, FLAT, task=task)
    assert len(rollout.turns) == 3
    assert not rollout.passed
    for number in ("987", "654", "1641"):
        assert all(number not in plain().text(request.prompt) for request in asked)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_last_reply_is_judged_under_all_checks_and_nothing_is_shown_after_it(
    turns: int,
) -> None:
    rollout, _ = talk(*[WRONG] * 5, environment={"name": "repair", "turns": turns})
    assert len(rollout.turns) == turns
    assert [turn.execution is None for turn in rollout.turns] == [True] * (turns - 1) + [False]
    assert rollout.turns[-1].observation == ""
    assert rollout.execution
    assert rollout.execution.total == 2


def test_a_task_without_a_visible_check_is_a_single_turn() -> None:
    rollout, _ = talk(WRONG, RIGHT, task=replace(ADD, checks=(Check("assert f(1, 2) == 3"),)))
    assert len(rollout.turns) == 1


def test_a_reply_cut_off_at_the_limit_is_checked_like_any_other_and_may_be_mended() -> None:
    from assay.engines.base import Sampling

    long = RIGHT + "    # " + "and so on " * 60
    cut = "def f(a, b):\n    return (a +" + " a +" * 100
    rollout, _ = talk(cut, RIGHT, sampling=Sampling(40))
    assert [turn.completion.ended for turn in rollout.turns] == ["length", "stop"]
    assert rollout.turns[0].observation.startswith("That fails: ")
    assert rollout.passed
    assert talk(long, sampling=Sampling(40))[0].passed, "what is there is enough"


PROGRAMS = {
    "def f(a, b):\n    return [][1]\n": f"{SEEN.source}: IndexError: list index out of range",
    "def f(a, b):\n    return (a\n": "SyntaxError: '(' was never closed (<program>, line 2)",
    "g = 1\n": "the program does not define the entry point",
    "def f(a, b):\n    return 'look at `x`'\n": f"{SEEN.source}: gives 'look at `x`'",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_error_is_told_with_the_call_it_came_from(program: str) -> None:
    assert failure_of(Task("t", "", (SEEN,), "f"), program) == PROGRAMS[program]


def failure_of(task: Task, program: str | None) -> str:
    """What is said of the task's only check."""

    async def run(judge: Judge) -> Execution:
        return await judge.run(Job(task, program))

    return describe_failure(task.checks[0], with_judge(run, stop_early=False))


def test_checks_of_every_shape_are_described() -> None:
    minus = "def f(a, b):\n    return a - b\n"
    close = Check("assert abs(f(1, 2) - 3) < 1e-6, 'too far'", hidden=False)
    assert failure_of(Task("t", "", (close,), "f"), minus) == f"{close.source}: too far"
    assert (
        failure_of(Task("t", "", (Call("[1, 2]", "3", hidden=False),), "f"), minus)
        == "f(1, 2) gives -1, not 3"
    )
    reads = Task("t", "", (Exchange("1 2\n", "3\n", hidden=False),), "")
    assert failure_of(reads, "print(7)\n") == "line 1 is '7', not '3', where the input is\n1 2"


def test_what_is_shown_of_a_check_has_a_limit() -> None:
    input_ = Exchange("1 " * 100_000, "3", hidden=False)
    assert len(describe_failure(input_, Execution(Verdict.WRONG, detail="x"))) < LONGEST + 50


def test_drills_have_two_visible_checks() -> None:
    from assay.tasks import load

    assert {len(visible(task)) for task in load("drills:longer")} == {2}
