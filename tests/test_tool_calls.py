"""Tool calls cut from replies: what runs, and what is wrong with what does not."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from assay.extract.call_formats import CallFormat, call_formats, text_format
from assay.tools import Tool
from assay.types import ToolCall

HERMES, QWEN3_CODER = (call_formats[name] for name in ("hermes", "qwen3_coder"))

BASH = Tool("bash", "Run it.", {"command": "The command"}, "```mswea_bash_command", "\n```")
TEXT = text_format(BASH)


def hermes(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


@pytest.mark.parametrize("form", [*map(call_formats.__getitem__, call_formats), TEXT])
@pytest.mark.parametrize("command", ["ls", "", "cat <<E\n  \"a\"\t'b' <c> {d} é\nE", "a\n"])
def test_a_call_is_read_as_it_is_written(form: CallFormat, command: str) -> None:
    call = ToolCall("bash", {"command": command})
    alone = form in (call_formats["llama"], call_formats["functionary_v3"])
    text = form.block(call)
    (read,) = form.parse(text if alone else f"I look.\n{text}", [BASH])
    if form is TEXT:
        read = ToolCall("bash", {"command": read.arguments["command"].removeprefix("\n")})
    assert (read.name, dict(read.arguments), read.status) == ("bash", {"command": command}, "ok")


@pytest.mark.parametrize(
    ("form", "reply", "statuses"),
    [
        (HERMES, "No call.", []),
        (HERMES, hermes('{"name": "bash", "arguments": {"command": "ls"}'), ["invalid_json"]),
        (HERMES, hermes("[" * 100_000), ["invalid_json"]),
        (HERMES, hermes("1" * 5000), ["invalid_json"]),
        (HERMES, hermes('{"arguments": {"command": "ls"}}'), ["missing_name"]),
        (HERMES, hermes('["bash", "ls"]'), ["missing_name"]),
        (HERMES, hermes('{"name": 3, "arguments": {"command": "ls"}}'), ["missing_name"]),
        (HERMES, hermes('{"name": "sh", "arguments": {"command": "ls"}}'), ["unknown_tool"]),
        (HERMES, hermes('{"name": "bash", "arguments": {"cmd": "ls"}}'), ["wrong_arguments"]),
        (HERMES, hermes('{"name": "bash", "arguments": {"command": 1}}'), ["wrong_arguments"]),
        (HERMES, hermes('{"name": "bash", "arguments": ["ls"]}'), ["wrong_arguments"]),
        (HERMES, hermes('{"name": "bash", "arguments": "{\\"command\\": \\"l\\"}"}'), ["ok"]),
        (HERMES, '<tool_call>\n{"name": "bash"', ["unclosed_block"]),
        (HERMES, f"<think>{hermes('{}')}</think>So.", []),
        (HERMES, hermes('{"name": "bash", "arguments": {"command": "l"}}') * 2, ["ok", "ok"]),
        (QWEN3_CODER, hermes('{"name": "bash", "arguments": {}}'), ["missing_name"]),
        (QWEN3_CODER, hermes("<function=bash><parameter=command>"), ["unclosed_block"]),
        (QWEN3_CODER, hermes("<function=bash>\n</function>"), ["wrong_arguments"]),
        (QWEN3_CODER, hermes("<function=sh>\n</function>"), ["unknown_tool"]),
        (QWEN3_CODER, "<tool_call>\n<function=bash>", ["unclosed_block"]),
        (TEXT, f"{BASH.opens}\nls\n```\n{BASH.opens}\ncd", ["ok", "unclosed_block"]),
        (TEXT, "```bash\nls\n```", []),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_call_is_its_status(
    form: CallFormat, reply: str, statuses: list[str]
) -> None:
    calls = form.parse(reply, [BASH])
    assert [call.status for call in calls] == statuses
    assert all(bool(call.detail) == (call.status != "ok") for call in calls)


EDIT = Tool("edit", "Edits.", {"path": "The file", "text": "Its text"}, "", "")


@pytest.mark.parametrize(
    ("arguments", "named", "tells_of_tags"),
    [
        ({"command": "ls", "timeout": "5"}, ["'timeout'", "'command'"], True),
        ({"command": "ls", "a": "1", "b": "2"}, ["'a'", "'b'", "'command'"], True),
        ({"cmd": "ls"}, ["'cmd'", "'command'"], False),
        ({}, ["'command'"], False),
        ({"x" * 999: "1"}, ["x" * 60 + "'", "'command'"], False),
        ({f"a{n}": "1" for n in range(99)}, ["'a0'", "'a4'", "94 more", "'command'"], False),
    ],
)
def test_a_call_with_wrong_arguments_is_told_its_names_and_the_tools(
    arguments: dict[str, str], named: list[str], tells_of_tags: bool
) -> None:
    (call,) = QWEN3_CODER.parse(QWEN3_CODER.block(ToolCall("bash", arguments)), [BASH])
    assert call.status == "wrong_arguments"
    assert [name for name in named if name not in call.detail] == []
    assert ("without the tags" in call.detail) == tells_of_tags
    assert len(call.detail) < 400


def test_of_several_arguments_each_wrong_one_is_named() -> None:
    cases = [
        ({"path": "a", "content": "b"}, ["Missing 'text'", "no argument 'content'"]),
        ({"path": "a", "text": None}, ["Missing 'text'"]),
        ({"path": "a", "text": 5}, ["'text'", "no text"]),
        ({"file": "a"}, ["Missing 'path'", "Missing 'text'", "no argument 'file'"]),
    ]
    for arguments, named in cases:
        written = json.dumps({"name": "edit", "arguments": arguments})
        (call,) = HERMES.parse(hermes(written), [BASH, EDIT])
        assert call.status == "wrong_arguments"
        assert all(text in call.detail for text in [*named, "takes 'path', 'text'"]), call.detail
    written = json.dumps({"name": "edit", "arguments": {"path": "a", "text": "b", "why": "c"}})
    assert HERMES.parse(hermes(written), [EDIT])[0].status == "ok", "its text is quoted"


@pytest.mark.parametrize("name", call_formats)
def test_several_calls_are_read_as_they_are_written(name: str) -> None:
    form = call_formats[name]
    calls = tuple(
        ToolCall("bash", {"command": text}) for text in ("ls -la", 'echo "\u00fc"\n\ttrue')
    )
    assert form.parse(form.write(calls), [BASH]) == calls


@pytest.mark.long
@pytest.mark.parametrize("name", [*call_formats, "text"])
def test_a_hostile_reply_takes_time_linear_in_its_length(name: str) -> None:
    form = TEXT if name == "text" else call_formats[name]
    block = form.block(ToolCall("bash", {"command": "ls"}))
    tags = re.findall(r"<[^<>]*>|\[[A-Z_]+\]|```", block)
    pieces = {block, *form.marks, *tags, "<function=", "{", "[", "(", '"', "\n", " ", "a", "f."}
    for piece in pieces:
        text = piece * (250_000 // len(piece))
        for hostile in (text, block + text, block[: len(block) // 2] + text, text + block):
            start = time.process_time()
            form.parse(hostile, [BASH])
            assert time.process_time() - start < 5, piece  # with its square, many


TAGS = ("sed 's/</think>//' a", "cat <<E\n<think>\nx\n</think>\nE", "cat <<E\n<think>\nE",
        "[THINK]a[/THINK] b", "a </seed:think> b", "a <|END_THINKING|> b",
        "a <|channel|>final<|message|> b")  # fmt: skip


@pytest.mark.parametrize("name", call_formats)
@pytest.mark.parametrize(
    "thought", ["", "<think>\nI look.\n</think>\n\n", "<think>a</think>\n" * 2]
)
def test_tags_of_thoughts_in_an_argument_are_the_arguments(name: str, thought: str) -> None:
    form = call_formats[name]
    for command in TAGS:
        (read,) = form.parse(thought + form.block(ToolCall("bash", {"command": command})), [BASH])
        assert (read.status, dict(read.arguments)) == ("ok", {"command": command})


@pytest.mark.parametrize("form", [HERMES, QWEN3_CODER])
def test_no_call_runs_that_a_model_only_thinks_of(form: CallFormat) -> None:
    def call(command: str) -> str:
        return form.block(ToolCall("bash", {"command": command}))

    for reply, runs in (
        (f"<think>Maybe {call('rm')}</think>No.", []),
        (f"Maybe {call('rm')}</think>No.", []),  # the prompt opened the thought
        (f"<think>I look. {call('ls')}", ["ls"]),  # nothing says where the thought ends
        (f"<think>Maybe {call('rm')}</think>", []),
        (f"<think>I quote </think> here. {call('rm')}</think>{call('ls')}", ["ls"]),
        (f"I could use <tool_call>.</think>{call('ls')}", ["ls"]),
        (f"<think>a</think>So.\n<think>{call('rm')}</think>{call('ls')}", ["ls"]),
        (f"<think>a</think>{call('ls')}\n<think>{call('rm')}", ["ls"]),
        (f"`<think>` and `</think>` are tags. {call('ls')}", ["ls"]),
    ):
        assert [read.arguments["command"] for read in form.parse(reply, [BASH])] == runs, reply
    (read,) = form.parse(call(f"echo '</think>{call('rm')}'"), [BASH])
    assert read.arguments.get("command") != "rm"


def test_a_tools_schema_is_that_of_chat_apis() -> None:
    assert BASH.schema()["function"]["parameters"]["required"] == ["command"]
    json.dumps(BASH.schema())


RECORDED = re.split(
    r"^== (\w+): (.*)\n", (Path(__file__).parent / "tool_calls.txt").read_text(), flags=re.MULTILINE
)[1:]
"""Replies of each family in its format, and what becomes of the calls: a line of JSON each, the
command of one that runs, or the status of one that does not.
"""


@pytest.mark.parametrize(
    ("name", "title", "text"), zip(RECORDED[::3], RECORDED[1::3], RECORDED[2::3], strict=True)
)
def test_a_reply_of_a_family_has_the_calls_that_a_person_would_read(
    name: str, title: str, text: str
) -> None:
    reply, _, lines = text.partition("\n=\n")
    calls = call_formats[name].parse(reply.replace("\\r\n", "\r\n"), [BASH])
    found = [call.arguments["command"] if call.status == "ok" else {call.status} for call in calls]
    expected = [{line[1:]} if line.startswith("!") else json.loads(line)
                for line in lines.splitlines()]  # fmt: skip
    assert found == expected, title
    assert all(bool(call.detail) == (call.status != "ok") for call in calls)


@pytest.mark.parametrize(
    "source",
    ["f(x={[1]: 2})", "f(x={[]})", f"f{'.a' * 4000}(x=1)", "f(x=" + "-" * 5000 + "1)", "f(**{})"],
)
def test_what_python_cannot_hold_is_no_call(source: str) -> None:
    reply = f"<|tool_call_start|>[{source}]<|tool_call_end|>"
    (call,) = call_formats["lfm2"].parse(reply, [BASH])
    assert call.status == "invalid_json"


@pytest.mark.parametrize("value", ["...", "{1, 2}", "b'x'", "1e999", "2j", "'\\ud800'"])
def test_values_of_python_that_no_json_holds_are_no_arguments(value: str) -> None:
    reply = f"<|tool_call_start|>[bash(command={value})]<|tool_call_end|>"
    (call,) = call_formats["lfm2"].read(reply)
    assert call.status == "invalid_json"


TOOLS = [
    Tool(name, "Runs it.", {argument: "The text"}, "", "")
    for name, argument in (("python", "code"), ("bash", "command"), ("submit", "answer"))
]


REPLIES = [
    json.loads(line)
    for line in (Path(__file__).parent / "recorded_calls.jsonl").read_text().splitlines()
]
"""Replies that SmolLM2-135M-Instruct and Qwen2.5-Coder-0.5B-Instruct wrote on 2026-11-28, to their
own chat template, to two calls in the template of another model, or to a transcript with two calls.

Claude, a language model, read each reply and labelled its calls before the parser ran on it. A
call that the format's marks begin is named with its arguments, and `runs` unless the tool has other
arguments. It is "doubtful" if it is broken or cut off, or nobody knows where it ends. What stands
outside of the format's marks is no call. The first readings of three replies, `first_label`, were
changed when the parser differed: two were misread, and one holds tags that belong to a call.
"""


def label(call: ToolCall) -> dict[str, Any] | str:
    """A call as the labels of recorded replies put it."""
    if call.status in ("ok", "wrong_arguments", "unknown_tool"):
        arguments = dict(call.arguments)
        return {"name": call.name, "arguments": arguments, "runs": call.status == "ok"}
    return "doubtful"


@pytest.mark.parametrize("number", range(len(REPLIES)))
def test_replies_of_small_models_have_the_calls_that_their_reader_saw(number: int) -> None:
    row = REPLIES[number]
    calls = call_formats[row["format"]].parse(row["reply"], TOOLS)
    assert [*map(label, calls)] == row["calls"], row["reply"]
