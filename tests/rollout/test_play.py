"""Demonstrations played through an environment: what is read, and what is learned."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.environments import Conversation, environment_with
from assay.judge import Judge
from assay.policy.chat import Chat
from assay.progress import Progress
from assay.rollout.play import play
from assay.rollout.prompter import Prompter
from assay.types import Sample, Task
from tests.judge.opened import with_judge
from tests.policies import TASKS
from tests.policy.test_chat import chat_of
from tests.rollout.talks import ADD, FLAT, RIGHT, WRONG, context, plain

TOLD = "# That fails: assert f(1, 2) == 3: gives -1\n"


def tries(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    yield f"try f(1, 2)?{answer}"
    yield answer


@environment_with(script=tries)
async def trial(conversation: Conversation) -> None:
    """Reads up to a question mark, and says something."""
    said = await conversation.reply(stop=("?",))
    conversation.show(f"You said: {said}")
    await conversation.reply()


def played(
    *demonstrations: str, name: str = "repair", chat: Chat | None = None, **changes: Any
) -> list[Sample]:
    task = replace(changes.pop("task", ADD), demonstrations=demonstrations)

    async def run(judge: Judge) -> list[Sample]:
        return await play(
            [task], context(None, judge, chat or plain(), {"name": name}, **changes), Progress()
        )

    return with_judge(run, stop_early=False)


def learned(sample: Sample, chat: Chat | None = None) -> str:
    own = [token for token, is_own in zip(sample.tokens, sample.mask, strict=True) if is_own]
    return str((chat or plain()).tokenizer.decode(own))


def test_a_demonstration_that_fails_a_visible_check_is_read_and_the_right_answer_learned() -> None:
    (sample,) = played(WRONG)
    assert (
        plain().tokenizer.decode(sample.tokens)
        == f"{ADD.prompt}{WRONG}<end>{TOLD}{ADD.prompt}{RIGHT}<end>"
    )
    assert learned(sample) == f"{RIGHT}<end>"
    assert (list(sample.logprobs), sample.group) == ([], "add")


def test_a_demonstration_that_passes_what_is_visible_is_the_single_turn_it_was() -> None:
    for answer in (RIGHT, FLAT):
        task = replace(ADD, demonstrations=(answer,))
        assert (
            played(answer) == Prompter(plain()).samples(task) == played(answer, name="single_turn")
        )


def test_without_a_reference_a_failing_demonstration_teaches_nothing() -> None:
    assert played(WRONG, RIGHT, task=replace(ADD, reference=None)) == played(RIGHT)


def test_a_script_of_several_replies_is_learned_whole_and_a_stop_string_ends_one() -> None:
    (sample,) = played(RIGHT, name="trial")
    read = f"{ADD.prompt}try f(1, 2)?<end># You said: try f(1, 2)\n{ADD.prompt}{RIGHT}<end>"
    assert plain().tokenizer.decode(sample.tokens) == read
    assert learned(sample) == f"try f(1, 2)?{RIGHT}<end>", (
        "the end after a stop string is not the policy's"
    )


def test_what_has_no_room_for_the_right_answer_teaches_nothing() -> None:
    (whole,) = played(WRONG)
    assert len(played(WRONG, context_length=len(whole.tokens))) == 1
    assert played(WRONG, context_length=len(whole.tokens) - 1) == []


def test_what_the_machine_fails_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert played(RIGHT, WRONG, task=replace(ADD, setup="1 / 0")) == []
    assert "2 of 2 demonstrations could not be judged" in caplog.text


def test_a_model_that_chats_is_told_in_messages(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "auto")
    (sample,) = played(WRONG, chat=chat)
    text = chat.tokenizer.decode(sample.tokens)
    told = (
        "<|im_start|>user\nThat fails: assert f(1, 2) == 3: gives -1<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert text.endswith(f"{told}```python\n{RIGHT}```<|im_end|>\n")
    assert learned(sample, chat) == f"```python\n{RIGHT}```<|im_end|>\n"


def test_tasks_without_demonstrations_are_played_with_their_reference() -> None:
    (sample,) = played()
    assert learned(sample) == f"{RIGHT}<end>"
    task: Task = TASKS[0]
    assert Prompter(plain()).answers(task) == [task.reference]
