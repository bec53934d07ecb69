"""Tool calls cut from replies: what runs, and what is wrong with what does not."""

from __future__ import annotations

import json
import time

import pytest

from assay.extract.tool_calls import HERMES, QWEN3_CODER, CallFormat, text_format
from assay.tools import Tool
from assay.types import ToolCall

BASH = Tool("bash", "Run it.", {"command": "The command"}, "```mswea_bash_command", "\n```")
TEXT = text_format(BASH)


def hermes(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


@pytest.mark.parametrize("form", [HERMES, QWEN3_CODER, TEXT])
@pytest.mark.parametrize("command", ["ls", "", "cat <<E\n  \"a\"\t'b' <c> {d} é\nE", "a\n"])
def test_a_call_is_read_as_it_is_written(form: CallFormat, command: str) -> None:
    call = ToolCall("bash", {"command": command})
    (read,) = form.parse(f"I look.\n{form.block(call)}\nThen:", [BASH])
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


@pytest.mark.long
@pytest.mark.parametrize("form", [HERMES, QWEN3_CODER, TEXT])
def test_a_hostile_reply_takes_time_linear_in_its_length(form: CallFormat) -> None:
    block = form.opens + form.closes
    pieces = (block, form.opens, form.closes, "<function=", "<parameter=a>", "</parameter>", "```")
    for piece in pieces:
        start = time.process_time()
        form.parse(form.opens + piece * 50_000 + form.closes, [BASH])
        assert time.process_time() - start < 5  # where it grows with the square, minutes


def test_a_tools_schema_is_that_of_chat_apis() -> None:
    assert BASH.schema()["function"]["parameters"]["required"] == ["command"]
    json.dumps(BASH.schema())
