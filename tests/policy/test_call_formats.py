"""The format of tool calls that each public chat template writes, found by what it renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import SettingsError
from assay.extract.call_formats import call_formats
from assay.policy.chat import as_fields, as_results
from assay.rollout.prompter import Prompter
from assay.types import Completion, Message, Task, ToolCall, Turn
from tests.policy import test_tool_templates as templates
from tests.policy.test_tokens_over_turns import with_bash

FORMATS = {
    "apertus": "apertus", "apriel1_5": "minimax_m1", "command_r7b": "cohere",
    "deepseek_v3_2": "deepseek_v32", "devstral": "mistral", "functionary3_1": "functionary",
    "functionary3_2": "functionary_v3", "gemma4_v5": "gemma4", "glm4_6": "glm", "glm4_7": "glm",
    "glm4moe": "glm", "gptoss": "harmony", "granite4": "hermes", "hermes2_pro": "hermes",
    "kimi_k2": "kimi", "lfm2_2_5": "lfm2", "lfm2_v2": "lfm2", "llama3_1": "llama",
    "llama3_2": "llama", "minicpm5": "minicpm", "minimax_m1": "minimax_m1",
    "minimax_m2": "minimax_m2", "mistral_nemo": "mistral", "mistral_small3_2": "mistral",
    "nemotron_3_nano": "qwen3_coder", "qwen2_5": "hermes", "qwen3": "hermes",
    "qwen3_5_think": "qwen3_coder", "qwen3_coder": "qwen3_coder",
    "qwen3_instruct_2507": "hermes", "seed_oss": "seed_oss",
}  # fmt: skip
REFUSED = dict.fromkeys(templates.NO_TOOLS, "takes no tools") | {"granite3_3": "a format"}
"""Templates that show the model no tools, or no calls."""
ONE = templates.SINGLE | templates.FIRST
"""Templates that show one call alone."""
COMMANDS = ("ls -la", "cat <<E\n  \"a\" 'b' {c}\n\tE", "echo '</parameter>' && true")

BY_FIELDS = ("gemma4_v5", "gptoss", "minimax_m2", "mistral_nemo", "mistral_small3_2")
"""Templates that refuse or drop results behind a reply that is a text."""
CALL = ToolCall("bash", {"command": COMMANDS[1]})
WRONG = ToolCall("", status="invalid_json", detail="It is broken.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def test_each_template_has_a_format_or_says_why_not(folder: Path) -> None:
    assert {*FORMATS, *REFUSED} == {*templates.NAMES}
    for name, why in REFUSED.items():
        with pytest.raises(SettingsError, match=why):
            Prompter(templates.chat_of(folder, name), with_bash("template"))


@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_a_template_renders_are_read_back_from_the_tokens(
    folder: Path, name: str
) -> None:
    chat = templates.chat_of(folder, name)
    prompter = Prompter(chat, with_bash("template"))
    assert prompter.call_format is call_formats[FORMATS[name]]
    for command in COMMANDS[: 1 if name == "lfm2_2_5" else None]:  # it writes no escapes
        calls = (ToolCall("bash", {"command": command}),) * (1 if name in ONE else 2)
        fields = [
            {"id": f"a1B2c3D4{number}", "type": "function",
             "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for number, call in enumerate(calls)
        ]  # fmt: skip
        reply = Message("assistant", "", fields={"tool_calls": fields})
        arguments = prompter._arguments()
        _, tokens = chat.encode_turn((Message("user", "Hi"),), reply, arguments)
        said = Completion(chat.text(tokens), tokens, (0.0,) * len(tokens), "stop", ())
        assert prompter.calls(said) == calls


@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_assay_writes_are_read_by_the_same_format(folder: Path, name: str) -> None:
    prompter = Prompter(templates.chat_of(folder, name), with_bash("template"))
    call = ToolCall("bash", {"command": COMMANDS[1]})
    tokens = prompter.chat.encode_reply(prompter.written(call))
    said = Completion(prompter.chat.text(tokens), tokens, (0.0,) * len(tokens), "stop", ())
    assert prompter.calls(said) == (call,)


@pytest.mark.parametrize("name", FORMATS)
def test_the_result_of_each_call_is_shown_to_the_next_turn(folder: Path, name: str) -> None:
    chat = templates.chat_of(folder, name)
    prompter, task = Prompter(chat, with_bash("template")), Task("t", "Hi", (), "")
    turns: list[Turn] = []
    for call, text in (
        (CALL, prompter.written(CALL)), (WRONG, "A broken call"), (CALL, prompter.written(CALL)),
    ):  # fmt: skip
        tokens = (*chat.encode_reply(text, ended=False), chat.call_end_token)
        said = Completion(chat.text(tokens), tokens, (0.0,) * len(tokens), "stop", ())
        results = (f"{len(turns)} files",)
        turns.append(Turn(prompter.prompt(task, turns), said, calls=(call,), results=results))
    shown = chat.tokenizer.decode(prompter.prompt(task, turns))
    places = [shown.find(f"{number} files") for number in range(3)]
    assert places == sorted(places)
    assert min(places) > shown.index("Hi")


@pytest.mark.parametrize("name", BY_FIELDS)
def test_results_behind_calls_that_must_be_fields_are_the_templates_rendering(
    folder: Path, name: str
) -> None:
    chat = templates.chat_of(folder, name)
    assert chat.call_style.results_need_calls
    prompter, task = Prompter(chat, with_bash("template")), Task("t", "Hi", (), "")
    thought = {"reasoning_content": "I look."} if name == "minimax_m2" else {}
    ask = Message("user", "Hi")
    talk: list[Message] = [ask]
    turns: list[Turn] = []
    for count in (1, 1 if name in ONE else 2):
        calls = (CALL,) * count
        fields = {"tool_calls": as_fields(calls), **thought}
        reply = Message("assistant", "", fields=fields)
        _, tokens = chat.encode_turn(talk, reply, prompter._arguments())
        end = next(at for at, token in enumerate(tokens) if token in chat.stop_tokens)
        tokens = tokens[: end + 1]
        said = Completion(chat.text(tokens), tokens, (0.0,) * len(tokens), "stop", ())
        assert prompter.calls(said) == calls
        results = tuple(f"{number} files" for number in range(count))
        turns.append(Turn(prompter.prompt(task, turns), said, calls=calls, results=results))
        answers = zip(results, as_results(calls), strict=True)
        talk += [reply, *(Message("tool", text, fields=each) for text, each in answers)]
        assert prompter.prompt(task, turns) == chat.encode_prompt(talk, prompter._arguments())


def test_a_call_that_must_be_a_field_stays_as_it_was_sampled(folder: Path) -> None:
    for name in BY_FIELDS:
        chat = templates.chat_of(folder, name)
        prompter, task = Prompter(chat, with_bash("template")), Task("t", "Hi", (), "")
        text = f"  I look.\n\n{prompter.written(CALL)} "
        for ended in ("stop", "length"):
            tokens = chat.encode_reply(text, ended=False)
            tokens += (chat.call_end_token,) if ended == "stop" else ()
            said = Completion(chat.text(tokens), tokens, (0.0,) * len(tokens), ended, ())
            first = prompter.prompt(task)
            turn = Turn(first, said, calls=(CALL,), results=("0 files",))
            then = prompter.prompt(task, [turn])
            sampled = first + tokens
            assert then[: len(sampled)] == sampled
            rest = [*then[len(sampled) :]]
            assert rest.count(chat.call_end_token) == (ended == "length") + (name == "minimax_m2")
