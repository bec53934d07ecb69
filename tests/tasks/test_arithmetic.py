"""Generated sums: right answers, demonstrations of which some slip, and splits that share none."""

from __future__ import annotations

import re

from assay.extract import program
from assay.judge.kinds.answers import by_text
from assay.rewards.format import tagged
from assay.tasks import load
from assay.types import Answer, Execution, Verdict

SIGNS = {"add": 1, "subtract": -1}


def test_the_answer_is_what_the_steps_give_one_after_the_other() -> None:
    for task in load("arithmetic:test"):
        start, *steps = task.prompt.removeprefix("Start at ").removesuffix(".").split(", ")
        value = int(start)
        for step in steps:
            word, _, number = step.rpartition(" ")
            value += SIGNS[word] * int(number)
            assert 0 <= value <= 20
        assert task.checks == (Answer(str(value), exact=True),)


def test_two_in_five_demonstrations_slip_and_all_are_in_well_formed_tags() -> None:
    tasks = load("arithmetic:train")
    replies = [(task, reply) for task in tasks for reply in task.demonstrations]
    assert {tagged(reply, "think") for _, reply in replies} == {1.0}
    right = [program(task, reply) == task.reference for task, reply in replies]
    assert 0.58 < sum(right) / len(right) < 0.65


def test_the_last_step_of_a_demonstration_is_its_answer() -> None:
    for task in load("arithmetic:train", limit=200):
        for reply in task.demonstrations:
            (last,) = re.findall(r"= (\d+)</think><answer> (\d+)</answer>$", reply)
            assert last[0] == last[1]


def test_train_and_test_share_no_question_and_are_the_same_each_time() -> None:
    train, test = load("arithmetic:train"), load("arithmetic:test")
    assert (len(train), len(test)) == (1500, 150)
    assert not {task.prompt for task in train} & {task.prompt for task in test}
    assert load("arithmetic:train") == train


def test_a_demonstrations_own_answer_decides() -> None:
    (task,) = load("arithmetic:train", limit=1)
    decided = by_text(task.checks[0], "3")  # type: ignore[arg-type]
    assert task.reference == "3"
    assert isinstance(decided, Execution)
    assert decided.verdict is Verdict.PASS
