"""How a model is asked, what ends its turn, and which stop strings it gets."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from assay.config.sections import PolicySettings
from assay.errors import SettingsError
from assay.policy.chat import Chat
from assay.policy.load_model import load_policy
from assay.rollout.prompter import Prompter
from tests.policies import TASKS, checkpoint

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>")
STOPPED = replace(TASKS[0], stop=("\nclass ", "\nprint("))


def chat_of(folder: Path, how: str, template: str | None = CHATML) -> Chat:
    made = checkpoint(folder, "llama", template, special=SPECIAL)
    return load_policy(
        PolicySettings.model_validate({"model": str(made), "device": "cpu", "chat": how})
    ).chat


def test_a_turn_ends_with_the_token_of_the_template_and_so_does_a_sample_for_sft(
    tmp_path: Path,
) -> None:
    chat = chat_of(tmp_path, "auto")
    end = chat.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end != chat.tokenizer.eos_token_id
    assert chat.stop_tokens == {chat.tokenizer.eos_token_id, end}
    (sample,) = Prompter(chat).samples(TASKS[0])
    line_end = chat.tokenizer("\n")["input_ids"]
    assert list(sample.tokens[-2:]) == [end, *line_end], "what the template writes behind a reply"
    assert sample.tokens.count(end) == 2, "the user's turn and the assistant's"
    assert chat.text([*chat.tokenizer("x = 1")["input_ids"], end]) == "x = 1"


def test_special_tokens_around_a_thought_stay_in_the_text_and_others_do_not(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, "auto")
    chat.tokenizer.add_special_tokens({"extra_special_tokens": ["[THINK]", "[/THINK]", "[X]"]})
    tokens = chat.tokenizer("[THINK]x = 1[/THINK]\n[X]    y")["input_ids"]
    end = chat.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert chat.text([*tokens, end]) == "[THINK]x = 1[/THINK]\n    y"


def test_a_template_without_a_token_at_the_end_of_a_turn_leaves_it_to_the_end_of_sequence(
    tmp_path: Path,
) -> None:
    chat = chat_of(
        tmp_path,
        "template",
        "{% for m in messages %}{{ m.role }}: {{ m.content }} (done)\n{% endfor %}",
    )
    assert chat.stop_tokens == {chat.tokenizer.eos_token_id}
    assert Prompter(chat).samples(TASKS[0])[0].tokens[-1] == chat.tokenizer.eos_token_id


def test_the_template_is_taken_when_there_is_one_unless_the_settings_say_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        asked, plain = (chat_of(tmp_path / how, how) for how in ("auto", "text"))
    said = [
        record.getMessage() for record in caplog.records if "policy.chat" in record.getMessage()
    ]
    assert [line.rsplit("prompted ")[1] for line in said] == [
        "through its chat template",
        "as plain text to continue",
    ]
    assert asked.tokenizer.decode(Prompter(asked).prompt(TASKS[0])).startswith("<|im_start|>user\n")
    assert plain.tokenizer.decode(Prompter(plain).prompt(TASKS[0])) == TASKS[0].prompt
    assert Prompter(plain).samples(TASKS[0])[0].tokens[-1] == plain.tokenizer.eos_token_id
    assert plain.stop_tokens == {plain.tokenizer.eos_token_id}


def test_a_template_that_is_asked_for_and_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"policy\.chat.*has no chat template; use 'text'"):
        chat_of(tmp_path, "template", None)


def test_stop_strings_are_for_models_that_continue_text(tmp_path: Path) -> None:
    assert Prompter(chat_of(tmp_path / "a", "auto")).stop(STOPPED) == ()
    assert Prompter(chat_of(tmp_path / "b", "text")).stop(STOPPED) == STOPPED.stop
