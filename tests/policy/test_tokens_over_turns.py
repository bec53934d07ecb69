"""What a prompt after a turn holds under the chat templates of public models, token for token: what
was sampled as it was sampled, tool calls included.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.environments import Environment, build, no_text
from assay.errors import SettingsError
from assay.extract import thoughts
from assay.extract.call_formats import call_formats
from assay.policy.chat import Chat
from assay.rollout.prompter import Prompter
from assay.rollout.samples import to_samples
from assay.tasks import rows
from assay.tools import Tool
from assay.types import Completion, Message, Rollout, Score, Task, ToolCall, Turn
from tests.policy.test_chat_templates import DROPS, NAMES, chat_of, ids

HERMES, QWEN3_CODER = (call_formats[name] for name in ("hermes", "qwen3_coder"))

REPLIES = ("It is 4.", "```python\ndef f(xs):\n    return 4\n```", "Done: 4.")
ASKS = ("2+2?", "Write f.", "And now?")
BASH = Tool("bash", "Execute a bash command", {"command": "The command"}, "<sh>", "</sh>")


def with_bash(tool_calls: str) -> Environment:
    """An environment with this tool and no instructions."""
    shell = build({"name": "shell", "tool_calls": tool_calls})
    return replace(shell, tools=(BASH,), instructions=no_text, request="")


FORMATS = {
    "qwen2_5": HERMES,
    "qwen3": HERMES,
    "qwen3_coder": QWEN3_CODER,
}
COMMAND = "ls '<a>' && printf \"%s\\n\" 'é'\ncat <<E\n  x\nE"
REWRITES = {"gptoss", "qwen3", "qwen3_thinking"} | DROPS
"""Templates that show an earlier reply otherwise than it was."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_warned", set())


def completion(chat: Chat, tokens: tuple[int, ...], ended: Any = "stop") -> Completion:
    numbers = (-0.5,) * len(tokens)
    return Completion(chat.text(tokens), tokens, numbers, ended, (1,) * len(tokens))


def as_rendered(chat: Chat, messages: list[Message], reply: str) -> tuple[int, ...]:
    """A reply in the tokens of the template's own rendering, up to its end token."""
    _, tokens = chat.encode_turn(messages, Message("assistant", reply), {})
    end = next((n for n, token in enumerate(tokens) if token in chat.stop_tokens), len(tokens))
    return tokens[: end + 1]


def dialogue(prompter: Prompter, count: int) -> list[Turn]:
    """The turns of a dialogue whose replies are as the template writes them, behind the end of a
    thought where the prompt opens one and the template writes none.
    """
    task, turns = Task("t", ASKS[0], (), ""), list[Turn]()
    messages = [Message("user", ASKS[0])]
    for reply, ask in zip(REPLIES[:count], [*ASKS[1:count], ""], strict=True):
        tokens = as_rendered(prompter.chat, messages, reply)
        prompt = prompter.prompt(task, turns)
        if prompter.chat.opened(prompt) and "</think>" not in prompter.chat.text(tokens):
            tokens = (*prompter.chat.encode_reply("</think>", ended=False), *tokens)
        turns.append(Turn(prompt, completion(prompter.chat, tokens), observation=ask))
        messages += [Message("assistant", reply), Message("user", ask)]
    return turns


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_after_turns_is_token_for_token_the_templates_own_rendering(
    folder: Path, name: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, name)
    with caplog.at_level(logging.WARNING):
        turns = dialogue(Prompter(chat), count)
    messages = [{"role": "user", "content": ASKS[0]}]
    for reply, ask in zip(REPLIES[: count - 1], ASKS[1:], strict=False):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": ask}]
    expected = ids(chat, messages, add_generation_prompt=True)
    told = [line for line in caplog.messages if "rewrites earlier messages" in line]
    samples = to_samples([[Rollout(Task("t", "", (), ""), tuple(turns), Score(1.0))]])
    assert (len(samples), len(told)) == ((count, 1) if name in REWRITES else (1, 0))
    assert list(turns[-1].prompt_tokens) == expected


def test_a_reply_in_channels_is_shown_to_the_next_turn_without_its_thought(folder: Path) -> None:
    chat = chat_of(folder, "gptoss")
    task, prompter = Task("t", ASKS[0], (), ""), Prompter(chat)
    said = (
        "<|channel|>analysis<|message|>Two twos.<|end|><|start|>assistant"
        "<|channel|>final<|message|>It is 4.<|return|>"
    )
    shown = "<|start|>assistant<|channel|>final<|message|>It is 4.<|end|><|start|>user<|message|>"
    for text, then in (
        (said, shown),
        (said.partition("<|end|>")[0], shown.replace(REPLIES[0], "")),
    ):
        tokens = tuple(chat.tokenizer(text, add_special_tokens=False)["input_ids"])
        turn = Turn(prompter.prompt(task), completion(chat, tokens), observation=ASKS[1])
        assert thoughts.answer(turn.completion.text) == (REPLIES[0] if text is said else "")
        assert thoughts.first_thought(turn.completion.text) == ("Two twos." if text is said else "")
        assert thoughts.first_thought(said) == "Two twos."
        assert chat.tokenizer.decode(prompter.prompt(task, [turn])) == (
            f"{chat.tokenizer.decode(turn.prompt_tokens).removesuffix('<|start|>assistant')}"
            f"{then}{ASKS[1]}<|end|><|start|>assistant"
        )


def test_a_reply_that_ends_with_the_next_messages_first_token_is_continued_behind_it(
    folder: Path,
) -> None:
    chat = chat_of(folder, "glm4moe")
    reply = f"\n<think></think>\n{REPLIES[0]}"
    shown = [{"role": "user", "content": ASKS[0]}, {"role": "assistant", "content": REPLIES[0]}]
    asked = Message("user", ASKS[0])
    for following, mark in (
        (Message("user", ASKS[1]), "<|user|>"),
        (Message("tool", "sun", fields={"name": "look"}), "<|observation|>"),
    ):
        end = chat.tokenizer.convert_tokens_to_ids(mark)
        assert end in chat.stop_tokens
        said = (*chat.encode_reply(reply, ended=False), end)
        prompt = chat.encode_prompt([asked], {})
        turn = Turn(prompt, completion(chat, said))
        then = chat.encode_next(turn, [asked], Message("assistant", reply), [following], {})
        messages = [*shown, {"role": following.role, "content": following.content}]
        assert list(then) == ids(chat, messages, add_generation_prompt=True)
        assert then[: len(prompt) + len(said)] == (*prompt, *said)


@pytest.mark.parametrize("name", sorted({*NAMES}.difference(REWRITES, {"glm4moe"})))
def test_sampled_tokens_stay_and_a_reply_that_was_cut_off_gets_its_end(
    folder: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    task, prompter = Task("t", ASKS[0], (), ""), Prompter(chat)
    first = prompter.prompt(task)
    letters = tuple(token for letter in "It is 4" for token in chat.encode_reply(letter, False))
    prompts = [
        prompter.prompt(task, [Turn(first, completion(chat, tokens, ended), observation=ASKS[1])])
        for tokens, ended in (((*letters, chat.end_token), "stop"), (letters, "length"))
    ]
    for prompt in prompts:  # GLM's puts an empty thought before a reply without one
        assert prompt[: len(first) + len(letters)] == first + letters
    stopped, cut_off = (prompt[len(first) + len(letters) :] for prompt in prompts)
    assert stopped[0] == chat.end_token
    assert stopped.count(chat.end_token) == cut_off.count(chat.end_token)
    assert chat.tokenizer.decode(stopped).split() == chat.tokenizer.decode(cut_off).split()


@pytest.mark.parametrize("name", [*NAMES])
def test_the_format_of_tool_calls_is_the_templates_or_it_is_refused_in_one_line(
    folder: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    if form := (FORMATS | {"glm4moe": call_formats["glm"]}).get(name):
        assert Prompter(chat, with_bash("template")).call_format is form
        return
    with pytest.raises(SettingsError, match=r"'template': the model's chat template .*'text'\Z"):
        Prompter(chat, with_bash("template"))
    assert Prompter(chat, with_bash("text")).calls(
        completion(chat, chat.encode_reply("<sh>ls</sh>"))
    )


@pytest.mark.parametrize("name", FORMATS)
def test_calls_and_their_results_are_token_for_token_the_templates_own_rendering(
    folder: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    task, prompter = (
        Task("t", ASKS[0], (), ""),
        Prompter(chat, with_bash("template")),
    )
    tools, turns = [BASH.schema()], list[Turn]()
    messages: list[dict[str, Any]] = [{"role": "user", "content": ASKS[0]}]
    for number in (1, 2):
        calls = (ToolCall("bash", {"command": COMMAND}),) * number
        fields = [
            {"type": "function", "function": {"name": "bash", "arguments": dict(call.arguments)}}
            for call in calls
        ]
        prompt = prompter.prompt(task, turns)
        render = chat.tokenizer.apply_chat_template
        assert list(prompt) == chat.tokenizer(
            render(messages, tools=tools, tokenize=False, add_generation_prompt=True),
            add_special_tokens=False,
        )["input_ids"]  # fmt: skip
        messages.append({"role": "assistant", "content": "", "tool_calls": fields})
        whole = chat.tokenizer(render(messages, tools=tools, tokenize=False))["input_ids"]
        end = len(prompt) + whole[len(prompt) :].index(chat.end_token)
        said = completion(chat, tuple(whole[len(prompt) : end + 1]))
        assert prompter.calls(said) == calls
        results = tuple(f"result {n}" for n in range(number))
        turns.append(Turn(prompt, said, calls=calls, results=results, observation="x"))
        messages += [{"role": "tool", "content": result} for result in results]
    prompt = prompter.prompt(task, turns)
    expected = chat.tokenizer(
        render(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    )["input_ids"]
    assert list(prompt) == expected


def test_thoughts_stay_over_results_of_tools_and_are_dropped_at_the_users_next_message(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, "qwen3")
    task = Task("t", ASKS[0], (), "")
    prompter = Prompter(chat, with_bash("template"))
    call = ToolCall("bash", {"command": COMMAND})
    text = f"<think>\nI look.\n</think>\n\n{HERMES.block(call)}"
    said = completion(chat, chat.encode_reply(text))
    assert prompter.calls(said) == (call,)
    first = Turn(prompter.prompt(task), said, calls=(call,), results=("found",), observation="x")
    then = Turn(prompter.prompt(task, [first]), said, observation="No.")
    assert then.prompt_tokens[: len(first.prompt_tokens + said.tokens)] == (
        first.prompt_tokens + said.tokens
    )
    assert "I look." in chat.tokenizer.decode(then.prompt_tokens)
    assert not any("rewrites" in line for line in caplog.messages)
    with caplog.at_level(logging.WARNING):
        prompts = [prompter.prompt(task, [first, then]) for _ in range(2)]
    assert prompts[0] == prompts[1]
    assert "I look." not in chat.tokenizer.decode(prompts[0])
    assert sum("rewrites earlier messages" in line for line in caplog.messages) == 1
