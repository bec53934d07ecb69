"""Messages, tool calls and tools of rows: the forms that are read, what tables add to them, and
what is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from assay.errors import DataError
from assay.rollout.pairs import tasks_of_pairs
from assay.tasks import exact, load, rows
from assay.tasks.rows import Row
from assay.types import Task
from tests.tasks.test_load import ROW, write

ASK = {"role": "user", "content": "Is it warm?"}
CITY = {"name": "weather", "arguments": {"city": "Ulm", "days": 2}}
QUERY = {"name": "search", "arguments": {"query": "Ulm", "near": {"lat": 48}}}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "default": "Ulm"}}}
WEATHER = {"name": "weather", "description": "Looks.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": WEATHER}


def calling(function: Any, **fields: Any) -> dict[str, Any]:
    calls = [{"id": "1", "type": "function", "function": function, **fields}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def row_of(reply: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [ASK, reply], **fields}


def loaded(file: str) -> list[Task]:
    return load(file, judged=False)


def calls_of(task: Task) -> list[dict[str, Any]]:
    return list(task.demonstration_fields["tool_calls"])


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_warned", set())


def jsonl(file: Path, table: Any) -> str:
    """As a table is exported: each row with the columns of all."""
    return write(file, *table.to_pylist())


def a_parquet(file: Path, table: Any) -> str:
    parquet.write_table(table, file.with_suffix(".parquet"))
    return str(file.with_suffix(".parquet"))


@pytest.mark.parametrize("save", [jsonl, a_parquet])
def test_what_a_table_fills_with_null_for_other_tools_is_not_there(
    tmp_path: Path, save: Callable[[Path, Any], str], caplog: pytest.LogCaptureFixture
) -> None:
    search = {"name": "search", "parameters": {"type": "object", "properties": {"query": {"enum":
              ["a", None]}}}}  # fmt: skip
    none = {"name": "now", "arguments": {}}
    table = pa.Table.from_pylist(
        [
            row_of(calling(CITY), tools=[TOOL]),
            row_of(calling(QUERY), tools=[{"type": "function", "function": search}]),
            row_of(calling(none), tools=[TOOL]),
            row_of({"role": "assistant", "content": "Yes."}, tools=None),
        ]
    )
    assert table.to_pylist()[2]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {
        "city": None, "days": None, "query": None, "near": None,
    }  # fmt: skip
    with caplog.at_level(logging.WARNING):
        first, second, third, last = loaded(save(tmp_path / "rows.jsonl", table))
    called = [calls_of(task)[0]["function"] for task in (first, second, third)]
    assert called == [CITY, QUERY, none]
    assert last.demonstration_fields == {}
    assert first.tools == third.tools == (TOOL,)
    assert second.tools == ({"type": "function", "function": search},)
    assert last.tools == ()
    assert sum("null" in line and "JSON text" in line for line in caplog.messages) == 1


def test_a_null_in_arguments_as_json_text_stays_and_nobody_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = '{"city": null}'
    with caplog.at_level(logging.WARNING):
        (task,) = loaded(
            write(tmp_path / "rows.jsonl", row_of(calling({"name": "weather", "arguments": text})))
        )
    assert calls_of(task)[0]["function"]["arguments"] == text
    assert caplog.messages == []


def test_what_datasets_saves_of_rows_that_differ_in_kind_is_read(tmp_path: Path) -> None:
    """The library keeps such columns as JSON texts."""
    other = {"name": "weather", "arguments": {"city": ["Ulm"]}}
    tools = [json.loads(json.dumps(TOOL))]
    tools[0]["function"]["parameters"]["properties"] = json.dumps(PARAMETERS["properties"])
    table = pa.Table.from_pylist(
        [
            {"messages": [*map(json.dumps, row_of(calling(call))["messages"])], "tools": tools}
            for call in (CITY, other)
        ]
    )
    tasks = loaded(a_parquet(tmp_path / "rows", table))
    assert [calls_of(task)[0]["function"] for task in tasks] == [CITY, other]
    assert [task.tools for task in tasks] == [(TOOL,)] * 2


def test_arguments_that_are_a_map_of_a_table_are_an_object(tmp_path: Path) -> None:
    arguments = pa.map_(pa.string(), pa.string())
    function = pa.struct([("name", pa.string()), ("arguments", arguments)])
    call = pa.struct([("function", function)])
    message = pa.struct(
        [("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(call))]
    )
    schema = pa.schema([("messages", pa.list_(message))])
    items = {"name": "weather", "arguments": [("city", "Ulm")]}
    reply = {"role": "assistant", "content": None, "tool_calls": [{"function": items}]}
    table = pa.Table.from_pylist([{"messages": [ASK, reply]}], schema=schema)
    (task,) = loaded(a_parquet(tmp_path / "rows", table))
    assert calls_of(task)[0]["function"]["arguments"] == {"city": "Ulm"}


FLAT = {"type": "function", **WEATHER}
FORMS = {
    "a list": [TOOL],
    "JSON text": json.dumps([TOOL]),
    "a list of JSON texts": [json.dumps(TOOL)],
    "functions alone": [WEATHER],
    "the responses API": [FLAT],
    "Anthropic's": [{"name": "weather", "description": "Looks.", "input_schema": PARAMETERS}],
    "parameters as JSON text": [
        {"type": "function", "function": {**WEATHER, "parameters": json.dumps(PARAMETERS)}}
    ],
    "nulls of a table": [{"type": "function", "function": {**WEATHER, "strict": None}}],
}


@pytest.mark.parametrize("form", FORMS)
def test_tools_are_read_in_the_forms_that_sets_have(tmp_path: Path, form: str) -> None:
    tools = FORMS[form]
    reply = {"role": "assistant", "content": "Yes."}
    sft, judged, pair = (
        row_of(reply, tools=tools),
        {**ROW, "tools": tools},
        tmp_path / "pairs.jsonl",
    )
    write(pair, {"prompt": "2+2?", "chosen": "4", "rejected": "5", "tools": tools})
    tasks = [*loaded(write(tmp_path / "rows.jsonl", sft, judged)), *tasks_of_pairs(pair)]
    assert [list(task.tools) for task in tasks] == [[TOOL]] * 3
    verl = {"prompt": [ASK], "reward_model": {"ground_truth": "4"}, "tools": tools}
    (task,) = load(write(tmp_path / "verl.jsonl", verl))
    assert list(task.tools) == [TOOL]


def test_tools_are_no_unknown_field_and_none_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = {"role": "assistant", "content": "Yes."}
    none: tuple[Any, ...] = (None, "", [], "null", "[]")
    files = [row_of(reply, tools=tools, id=repr(tools)) for tools in (*none, [TOOL])]
    with caplog.at_level(logging.WARNING):
        tasks = loaded(write(tmp_path / "rows.jsonl", *files))
    assert [len(task.tools) for task in tasks] == [0, 0, 0, 0, 0, 1]
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING):
        loaded(write(tmp_path / "old.jsonl", row_of(reply, functions=[WEATHER])))
    assert "assay calls it 'tools'" in caplog.messages[0]


def test_a_task_with_tools_and_calls_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    reply = calling({"name": "weather", "arguments": '{"city": null}'})
    row = {**ROW, "prompt": [ASK, reply, ASK], "tools": [TOOL]}
    (task,) = load(write(tmp_path / "rows.jsonl", row))
    (again,) = load(write(tmp_path / "exact.jsonl", exact.row_of(task)))
    assert again == task
    assert again.tools == (TOOL,)


CALLS = calling(CITY)["tool_calls"]
CALL_FORMS: dict[str, dict[str, Any]] = {
    "a list": {"tool_calls": CALLS},
    "JSON text": {"tool_calls": json.dumps(CALLS)},
    "a list of JSON texts": {"tool_calls": [*map(json.dumps, CALLS)]},
    "name and arguments alone": {"tool_calls": [{"id": "1", **CITY}]},
    "a flat call with its type": {"tool_calls": [{"id": "1", "type": "function", **CITY}]},
    "no type": {"tool_calls": [{"id": "1", "function": CITY}]},
    "the older field": {"function_call": CITY},
    "both fields": {"tool_calls": CALLS, "function_call": CITY},
    "the older field of a table": {"tool_calls": None, "function_call": CITY},
}


@pytest.mark.parametrize("form", CALL_FORMS)
def test_calls_are_read_in_the_forms_that_sets_have(tmp_path: Path, form: str) -> None:
    reply = {"role": "assistant", "content": None, **CALL_FORMS[form]}
    (task,) = loaded(write(tmp_path / "rows.jsonl", row_of(reply)))
    (call,) = calls_of(task)
    has_id = "1" in json.dumps(CALL_FORMS[form].get("tool_calls"))
    assert call == {**({"id": "1"} if has_id else {}), "type": "function", "function": CITY}
    assert {*task.demonstration_fields} == {"tool_calls"}


@pytest.mark.parametrize("name", ["tool_calls", "function_call"])
@pytest.mark.parametrize("none", [None, [], {}, "null", "[]", "{}"])
def test_a_reply_without_calls_has_none_also_where_the_column_is_json_text(
    tmp_path: Path, name: str, none: Any
) -> None:
    reply = {"role": "assistant", "content": "Yes.", name: none}
    (task,) = loaded(write(tmp_path / "rows.jsonl", row_of(reply)))
    assert task.demonstration_fields == {}
    both = {**calling(CITY), "function_call": none}
    (task,) = loaded(write(tmp_path / "rows.jsonl", row_of(both)))
    assert {*task.demonstration_fields} == {"tool_calls"}


TEXTS = [{"type": "text", "text": "Is it"}, {"type": "text", "text": " warm?", "image_url": None}]
RESULT = {"role": "tool", "tool_call_id": "1", "name": "weather", "content": "Yes"}


def test_results_and_texts_in_parts_are_messages() -> None:
    old = {"role": "function", "name": "weather", "content": "Yes"}
    parts = {**RESULT, "content": [{"type": "text", "text": "Yes"}]}
    conversation = [{"role": "user", "content": TEXTS}, calling(CITY), RESULT, parts, old]
    messages = Row({"messages": conversation}, "rows.jsonl, line 1").messages("messages")
    names = {"name": "weather", "tool_call_id": "1"}
    assert [(message.role, message.content, dict(message.fields)) for message in messages] == [
        ("user", "Is it warm?", {}),
        ("assistant", "", {"tool_calls": calling(CITY)["tool_calls"]}),
        ("tool", "Yes", names),
        ("tool", "Yes", names),
        ("tool", "Yes", {"name": "weather"}),
    ]


DEEP = json.loads("[" * 900 + "]" * 900)
NESTED: Any = "deep"
for _ in range(600):
    NESTED = {"a": NESTED}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (calling({**CITY, "arguments": '{"city": '}), "'weather' are no JSON (Expecting value"),
        (
            calling({**CITY, "arguments": "Ulm"}),
            "'tool_calls' 1: the arguments of 'weather' are no",
        ),
        (calling({**CITY, "arguments": '["Ulm"]'}), "'weather' are no object"),
        (calling({**CITY, "arguments": '"{}"'}), "'weather' are no object"),
        (calling({**CITY, "arguments": ["Ulm"]}), "'weather' are no object"),
        (calling({**CITY, "arguments": 7}), "'weather' are no object"),
        (calling({**CITY, "arguments": '{"n": NaN}'}), "NaN is no number of JSON"),
        (calling({**CITY, "arguments": {"n": float("inf")}}), "Infinity is no number of JSON"),
        (calling({**CITY, "arguments": '{"n": "\\ud800"}'}), "surrogates not allowed"),
        (calling({**CITY, "arguments": "1" * 60_000}), "are no JSON"),
        (calling({**CITY, "arguments": "[" * 100_000}), "are no JSON"),
        (calling({"name": "weather", "parameters": {"city": "Ulm"}}), "rename 'parameters'"),
        (calling({"arguments": {}}), "'messages' 2, 'tool_calls' 1 is an object"),
        (calling({"name": " ", "arguments": {}}), "'tool_calls' 1 is an object"),
        (calling("weather"), "'tool_calls' 1 is an object"),
        ({**calling(CITY), "tool_calls": "weather()"}, "'tool_calls' is a text (weather()); make"),
        ({**calling(CITY), "tool_calls": "a" * 999}, f"'tool_calls' is a text ({'a' * 40}); make"),
        ({**calling(CITY), "tool_calls": {"function": CITY}}, "'tool_calls' is an object"),
        ({**calling(CITY), "tool_calls": ["weather"]}, "'tool_calls' 1 is a text (weather)"),
        ({"role": "assistant", "function_call": {"name": 1}}, "'tool_calls' 1 is an object"),
        ({"role": "assistant", "content": None}, "'messages' 2 holds"),
        ({"role": "assistant", "content": [{"type": "image_url"}]}, "has a part 'image_url'"),
        ({"role": "assistant", "content": ["a"]}, "has a part 'a'"),
        (calling({**CITY, "arguments": NESTED}), "'messages' 2 is nested too deeply"),
    ],
)
def test_a_call_that_cannot_be_read_is_named_by_row_and_field_in_one_line(
    reply: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as told:
        Row({"messages": [ASK, reply]}, "rows.jsonl, line 3").messages("messages")
    line = str(told.value)
    assert line.startswith("rows.jsonl, line 3: 'messages' 2")
    assert message in line
    assert "\n" not in line
    assert len(line) < 350


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("weather", "'tools' is a text (weather); make it a list"),
        ({"name": "weather"}, "'tools' is an object"),
        ([7], "'tools' 1 is no object (7)"),
        ([TOOL, {"type": "web_search"}], "'tools' 2 is an object"),
        ([{"type": "function", "function": "weather"}], "'tools' 1 is an object"),
        ([{"name": "weather", "parameters": ["city"]}], "'tools' 1: 'parameters' is a list"),
        ([{"name": "weather", "description": "\ud800"}], "'tools' holds half a character"),
        (DEEP, "'tools' is nested too deeply"),
        ([{"name": "weather", "parameters": NESTED}], "'tools' is nested too deeply"),
    ],
)
def test_tools_that_cannot_be_read_are_named_by_row_in_one_line(tools: Any, message: str) -> None:
    with pytest.raises(DataError) as told:
        Row({"tools": tools}, "rows.jsonl, line 3").tools()
    line = str(told.value)
    assert line.startswith("rows.jsonl, line 3: ")
    assert message in line
    assert "\n" not in line
