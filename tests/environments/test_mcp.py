"""MCP servers in the box of a shell: their tools are the model's, and whatever they or the model's
commands do, the rollout goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assay import environments
from assay.environments import mcp_client
from assay.environments.mcp_client import McpError, answer_of, typed
from assay.environments.mcp_servers import list_tools, open_servers, shown_files
from assay.errors import DataError, SettingsError, UserError
from assay.extract.call_formats import call_formats
from assay.policy.chat import Chat
from assay.sandbox.box import Box
from assay.types import RepositoryTests, Rollout, ToolCall, Verdict
from tests.environments.repositories import repository
from tests.environments.test_shell import EDIT, SUBMIT, worked
from tests.judge.opened import take_walls_away
from tests.policy.test_chat_templates import chat_of
from tests.sandbox.test_box import in_box

HERMES = call_formats["hermes"]
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The server's file, which users of boxes may read too."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = shutil.copy(Path(__file__).with_name("mcp_server.py"), folder)
        Path(file).chmod(0o644)
        yield file


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Chat:
    return chat_of(tmp_path_factory.mktemp("tokenizer"), "qwen3")


def bash(command: str) -> str:
    return HERMES.block(ToolCall("bash", {"command": command}))


def call(name: str, **arguments: Any) -> str:
    return HERMES.block(ToolCall(name, arguments))


def result(text: str, status: int = 0) -> str:
    return f"<returncode>{status}</returncode>\n<output>\n{text}</output>"


def nested(depth: int) -> list[Any]:
    """A list in a list, and so on."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


IMAGE = "\n[image, which is no text]"


def used(folder: Path, chat: Chat, server: str, how: str, *lines: str, **settings: Any) -> Rollout:
    """The rollout of a model that says these lines and submits, with a server of this kind."""
    command = [PYTHON, server, how]
    return worked(folder, *lines, bash(SUBMIT), chat=chat, mcp={"memo": command}, **settings)


@pytest.mark.parametrize("tier", ["A", "C"])
def test_a_server_keeps_its_state_over_the_calls_of_a_rollout_and_loses_it_with_that(
    tier: str, chat: Chat, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_walls_away(monkeypatch, tier)
    for name in ("first", "second"):
        rollout = used(
            tmp_path / name, chat, server, "", call("note", text="a"), bash("ls"),
            call("note", text="b", times=2) + call("recall"), bash(EDIT),
        )  # fmt: skip
        first, listed, both, _, _ = rollout.turns
        assert first.results == (result("a" + IMAGE),)
        assert "calc.py" in listed.observation
        assert both.results == (result("a, b, b" + IMAGE),) * 2
        assert rollout.execution is not None
        assert rollout.execution.verdict is Verdict.PASS


def test_the_prompt_offers_the_tools_as_the_server_lists_them(
    chat: Chat, server: str, tmp_path: Path
) -> None:
    rollout = used(tmp_path, chat, server, "")
    text = chat.tokenizer.decode(rollout.turns[0].prompt_tokens)
    offered = [json.loads(line) for line in text.split("\n") if line.startswith('{"type')]
    names = [each["function"]["name"] for each in offered]
    assert names == ["bash", "note", "recall"], "of both pages"
    assert offered[1]["function"]["parameters"]["properties"]["times"] == {"type": "integer"}
    assert "call at least one of your tools" in text


def test_calls_that_cannot_run_say_why_and_the_rollout_goes_on(
    chat: Chat, server: str, tmp_path: Path
) -> None:
    rollout = used(
        tmp_path, chat, server, "", call("note"), call("forget"), bash("true"),
        '<tool_call>\n{"name": "note", "arguments": ["a"]}\n</tool_call>',
        call("note", text="bad"), call("note", text="a", times="2") + call("note", text=5),
    )  # fmt: skip
    missing, unknown, _, no_object, bad, last, _ = rollout.turns
    assert "Missing 'text' argument in note tool call. It takes 'text', 'times'." in (
        missing.observation
    )
    assert "Unknown tool 'forget'. The tools are: bash, note, recall." in unknown.observation
    assert "are a list, not an object" in no_object.observation
    assert "call at least one of your tools" in no_object.observation
    assert bad.results == (result("bad" + IMAGE, 1),), "the tool says that it is an error"
    assert last.results[0] == result("bad, a, a" + IMAGE), "a text for a number is its JSON"
    assert "has ended (exited with status 1): Traceback" in last.results[1]


def test_numbers_that_json_cannot_hold_are_wrong_arguments_and_the_rollout_goes_on(
    chat: Chat, server: str, tmp_path: Path
) -> None:
    infinite = (
        '<tool_call>\n{"name": "note", "arguments": {"text": "a", "times": %s}}\n</tool_call>'
    )
    rollout = used(
        tmp_path, chat, server, "", infinite % "1e999", call("recall"), infinite % '"1e999"',
        bash(EDIT),
    )  # fmt: skip
    number, _, text, _, _ = rollout.turns
    assert "Error parsing tool call arguments: Out of range float values" in number.observation
    assert "non-int of type 'str'" in text.results[0], "it got the text"
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS


@pytest.mark.parametrize("value", [inf, nested(2000)], ids=["infinite", "deep"])
def test_a_call_that_cannot_be_written_is_an_error_and_the_next_one_is_answered(
    value: object, server: str, tmp_path: Path
) -> None:
    async def work(box: Box) -> None:
        servers = await open_servers(box, {"memo": [PYTHON, server]})
        with pytest.raises(McpError, match="'memo' gets or gives what JSON cannot hold"):
            await servers.call("note", {"text": "a", "more": value}, 20)
        assert "a" in (await servers.call("note", {"text": "a"}, 20)).text

    in_box(tmp_path, work, roots=shown_files({"memo": [PYTHON, server]}, ()))


def test_the_shim_of_a_version_manager_is_the_interpreter_that_it_starts(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / "manager" / "shims"
    shims.mkdir(parents=True)
    (shims / "python3").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    (shims / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims), prepend=":")
    (memo, *_) = list_tools({"memo": ["python3", server]}, ())
    assert memo.name == "note"


FAILS = {
    "dies": "has ended (exited with status 7)",
    "silent": "gave no answer to tools/call within 1 s",
    "floods": "wrote more than 4194304 bytes",
    "asks": "wrote more than",
}


@pytest.mark.parametrize("how", FAILS)
def test_a_server_that_fails_is_a_result_and_commands_go_on(
    how: str, chat: Chat, server: str, tmp_path: Path
) -> None:
    seconds = 1.0 if how == "silent" else 20.0
    rollout = used(
        tmp_path, chat, server, how, call("note", text="a") + call("recall") + bash("pwd"),
        bash(EDIT), seconds=seconds,
    )  # fmt: skip
    first, again, pwd = rollout.turns[0].results
    assert first.startswith(
        "<exception>An error occurred while calling the tool: the MCP server 'memo' "
    )
    assert FAILS[how] in first
    assert first.endswith(f"</exception>\n{result('', -1)}")
    assert FAILS[how] in again
    assert pwd.startswith("<returncode>0</returncode>")
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS


def test_answers_to_other_requests_and_lines_that_are_none_are_ignored_and_requests_refused(
    chat: Chat, server: str, tmp_path: Path
) -> None:
    rollout = used(tmp_path, chat, server, "wrong", call("note", text="a"), call("recall"))
    assert rollout.turns[0].results == (result("-32601, a" + IMAGE),)
    assert rollout.turns[1].results == (result("-32601, a, -32601" + IMAGE),)


HOSTILE = {
    "it is killed": ("pkill -9 -f mcp_server", "has ended (killed by SIGKILL)"),
    "it is stopped": ("pkill -STOP -f mcp_server", result("a, b" + IMAGE)),
    "its pipes are written to": (
        "for n in 0 1; do echo '{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}}' >"
        " /proc/$(pgrep -f mcp_server)/fd/$n; done", result("a, b" + IMAGE),
    ),
    "all processes are killed": ("kill -9 -1", "has ended (killed by SIGKILL)"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_command_does_to_a_server_neither_hangs_nor_confuses_the_rollout(
    what: str, chat: Chat, server: str, tmp_path: Path
) -> None:
    if not shutil.which("pgrep", path="/usr/bin:/bin"):
        pytest.skip("there is no pgrep")
    command, expected = HOSTILE[what]
    rollout = used(
        tmp_path, chat, server, "", call("note", text="a"), bash(command), call("note", text="b"),
        bash(EDIT),
    )  # fmt: skip
    assert expected in rollout.turns[2].results[0]
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([PYTHON, "{server}", "broken"], "has ended .exited with status 1.: I cannot start"),
        (["no-such-program"], "has ended .exited with status 126.: FileNotFoundError"),
        ([PYTHON, "{server}", "old"], "speaks the protocol's revision 1999-01-01, not one of 2025"),
        ([PYTHON, "{server}", "bash"], "has a tool 'bash'"),
        ([PYTHON, "-c", "print('hello')"], "has ended"),
        ([], "up to 8 servers, each with the words of its command"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_before_any_rollout(
    command: list[str], why: str, server: str
) -> None:
    words = [word.format(server=server) for word in command]
    with pytest.raises(SettingsError, match=why) as error:
        environments.build({"name": "shell", "mcp": {"memo": words}})
    assert "setting 'environment.mcp'" in str(error.value)


def test_settings_that_servers_cannot_have_are_refused(server: str) -> None:
    command = [PYTHON, server]
    two = {"a": command, "b": command}
    for settings, why in (
        ({"mcp": two}, "'b' lists a tool 'note', which 'a' lists too"),
        (
            {"mcp": {"a": command}, "tool_calls": "text"},
            "leave out environment.tool_calls = 'text'",
        ),
        ({"mcp": {"a": command}, "mcp_roots": ["/no/such"]}, "there is no /no/such"),
        ({"mcp": {"a": "command"}}, "environment.mcp"),
    ):
        with pytest.raises(SettingsError, match=why):
            environments.build({"name": "shell", **settings})


def test_a_set_with_one_image_is_refused_before_any_rollout_of_servers(
    server: str, tmp_path: Path
) -> None:
    plain = repository(tmp_path)
    check = RepositoryTests("", ("t.py::test_a",), (), image="python:3.11")
    image = replace(plain, id="with/image", checks=(check,))
    shell = environments.build({"name": "shell", "mcp": {"memo": [PYTHON, server]}})
    environments.require_fit(shell, [plain], "mine.jsonl")
    with pytest.raises(DataError, match="task with/image: a box with an image shows") as error:
        environments.require_fit(shell, [plain, image], "mine.jsonl")
    assert "\n" not in str(error.value)
    environments.require_fit(environments.build({"name": "shell"}), [plain, image], "mine.jsonl")


def test_a_server_whose_list_depends_on_the_work_folder_stops_the_run(
    chat: Chat, server: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="the MCP servers memo list other tools"):
        used(tmp_path, chat, server, "changes")


@pytest.mark.parametrize(
    ("given", "schema", "expected"),
    [
        ("5", {"type": "integer"}, 5),
        ("[1]", {"type": ["array", "null"]}, [1]),
        ("true", {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, True),
        ("5", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5"),
        ("5", {"type": "string"}, "5"),
        ("5", {}, "5"),
        ("NaN", {"type": "number"}, "NaN"),
        ("-1e999", {"type": "number"}, "-1e999"),
        ("[1e999]", {"type": "array"}, "[1e999]"),
        ("1, \"x\": 2", {"type": "number"}, "1, \"x\": 2"),
        (5, {"type": "string"}, 5),
    ],
)  # fmt: skip
def test_a_text_for_another_type_is_its_json(given: object, schema: Any, expected: object) -> None:
    assert typed({"it": given}, {"properties": {"it": schema}}) == {"it": expected}


def test_a_result_is_its_texts_and_other_items_are_named() -> None:
    text, link = {"type": "text", "text": "a"}, {"type": "resource_link", "uri": "file:///x"}
    assert answer_of({"content": [text, link, 5, text]}) == (
        "a\n[resource_link, which is no text]\n[null, which is no text]\na", False
    )  # fmt: skip
    assert answer_of({"content": [], "structuredContent": {"é": 1}}) == ('{"é": 1}', False)
    assert answer_of({"content": [], "isError": True}) == ("", True)
    assert answer_of([]).is_error


@pytest.mark.parametrize(
    "listed",
    [
        {}, {"name": "a b", "inputSchema": {}}, {"name": "a"}, {"name": "a", "inputSchema": []}, 5,
        {"name": "a", "inputSchema": {"properties": []}},
        {"name": "a", "inputSchema": {"required": [1]}},
        {"name": "a", "inputSchema": {}, "description": 5},
        {"name": "a", "inputSchema": {}, "description": "x" * mcp_client.MOST_SCHEMA},
    ],
)  # fmt: skip
def test_a_tool_that_no_model_can_be_offered_is_refused(listed: object) -> None:
    with pytest.raises(mcp_client.McpError):
        mcp_client.tool_of(listed)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3_coder", "glm4moe"])
def test_calls_in_each_format_reach_the_server_with_values_of_its_types(
    name: str, server: str, tmp_path: Path
) -> None:
    chat, tools = chat_of(tmp_path / "chat", name), list_tools({"memo": [PYTHON, server]}, ())
    form = chat.call_format(tools, {"tools": [tool.schema() for tool in tools]})
    lines = [
        form.write([ToolCall("note", {"text": "5", "times": "2"})]),
        form.write([ToolCall("recall", {})]),
        form.write([ToolCall("bash", {"command": SUBMIT})]),
    ]
    rollout = worked(tmp_path, *lines, chat=chat, mcp={"memo": [PYTHON, server]})
    assert [turn.results for turn in rollout.turns[:2]] == [(result("5, 5" + IMAGE),)] * 2


@pytest.mark.parametrize("name", [*call_formats])
def test_an_argument_that_a_schema_requires_and_does_not_describe_can_be_given(name: str) -> None:
    form, schema = call_formats[name], {"type": "object", "required": ["q"]}
    tool = mcp_client.tool_of({"name": "search", "inputSchema": schema})
    call = ToolCall("search", {"q": "a text"})
    assert [found.status for found in form.parse(form.block(call), [tool])] == ["ok"]
    (lacks,) = form.parse(form.block(ToolCall("search", {})), [tool])
    assert lacks.status == "wrong_arguments"
    assert "Missing 'q' argument in search tool call. It takes 'q'." in lacks.detail
