"""A conversation that goes on: the same tokens as if it were rendered anew, or else a sample by
itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.policy.chat import Chat
from assay.rollout.prompter import Prompter
from assay.rollout.samples import to_samples
from assay.types import Completion, Rollout, Score, Task, Turn
from tests.policies import TASKS
from tests.policy.test_chat import CHATML, chat_of

TASK: Task = TASKS[0]
REPLY = "<think>Easy.</think>def f(xs):\n    return xs\n"
FORGETS = CHATML.replace(
    "{{ m.content }}",
    "{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}"
    "{% endif %}"
)  # fmt: skip


def said(chat: Chat, prompt: tuple[int, ...], tokens: tuple[int, ...], shown: str) -> Turn:
    text = chat.text(tokens)
    return Turn(
        prompt,
        Completion(text, tokens, (-1.0,) * len(tokens), "stop", (1,) * len(tokens)),
        observation=shown,
    )


def dialogue(chat: Chat, *replies: tuple[int, ...]) -> Rollout:
    """The policy says the replies, and is told `No: 1.` and the like after each."""
    turns: list[Turn] = []
    for number, tokens in enumerate(replies):
        prompt = Prompter(chat).prompt(TASK, turns)
        turns.append(said(chat, prompt, tokens, f"No:\n{number}."))
    return Rollout(TASK, tuple(turns), Score(1.0))


@pytest.mark.parametrize("how", ["auto", "text"])
def test_a_conversation_is_one_sample_and_equal_to_its_rendering(tmp_path: Path, how: str) -> None:
    chat = chat_of(tmp_path, how)
    rollout = dialogue(chat, *[chat.encode_reply(REPLY)] * 3)
    (sample,) = to_samples([[rollout]])
    assert tuple(sample.tokens) == rollout.turns[-1].prompt_tokens + chat.encode_reply(REPLY)
    if how == "auto":
        told = [
            ("assistant", REPLY),
            ("user", "No:\n0."),
            ("assistant", REPLY),
            ("user", "No:\n1."),
        ]
        rest = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in told)
        text = (
            chat.tokenizer.decode(Prompter(chat).prompt(TASK)).removesuffix(
                "<|im_start|>assistant\n"
            )
            + rest
        )
        assert rollout.turns[-1].prompt_tokens == tuple(
            chat.tokenizer(f"{text}<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
        )
    else:
        rendered = chat.tokenizer.decode(rollout.turns[-1].prompt_tokens)
        end = chat.tokenizer.eos_token
        told = [f"{TASK.prompt}{REPLY}{end}# No:\n# {number}.\n" for number in range(2)]  # type: ignore[misc]
        assert rendered == "".join(told) + TASK.prompt  # type: ignore[arg-type]


def test_a_template_that_forgets_thoughts_splits_the_sample(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "auto", FORGETS)
    rollout = dialogue(chat, *[chat.encode_reply(REPLY)] * 2)
    first, second = to_samples([[rollout]])
    assert "Easy." in chat.tokenizer.decode(first.tokens)
    assert chat.tokenizer.decode(second.tokens).count("Easy.") == 1, (
        "of the reply before, only the answer is read"
    )
    assert [sum(sample.mask) for sample in (first, second)] == [len(chat.encode_reply(REPLY))] * 2


@pytest.mark.parametrize("how", ["auto", "text"])
def test_tokens_that_are_not_the_tokenizers_own_for_the_text_stay_as_they_were_sampled(
    tmp_path: Path, how: str
) -> None:
    chat = chat_of(tmp_path, how)
    letters = tuple(token for letter in REPLY for token in chat.encode_reply(letter, ended=False))
    drawn = (*letters, chat.end_token)
    assert chat.text(drawn) == REPLY
    assert drawn != chat.encode_reply(REPLY)
    for replies in ((drawn, chat.encode_reply(REPLY)), (chat.encode_reply(REPLY), drawn)):
        (sample,) = to_samples([[dialogue(chat, *replies)]])
        own = tuple(token for token, on in zip(sample.tokens, sample.mask, strict=True) if on)
        assert own == replies[0] + replies[1]


def test_what_a_reply_lacks_its_end_is_given_one_that_is_not_learned(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "text")
    cut = chat.encode_reply(REPLY)[:5]
    (sample,) = to_samples([[dialogue(chat, cut, chat.encode_reply(REPLY))]])
    start = len(Prompter(chat).prompt(TASK))
    assert list(sample.tokens[start : start + 6]) == [*cut, chat.end_token]
    assert list(sample.mask[start : start + 6]) == [True] * 5 + [False]
