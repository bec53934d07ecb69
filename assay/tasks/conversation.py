"""Messages, tool calls and tools of rows: in the forms of TRL, of chat APIs and of tables."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.tools import parse_arguments
from assay.types import Message

ROLES = ("system", "user", "assistant", "tool")
ABSENT: tuple[object, ...] = (None, "", [], {})
"""Values of a message's field that is not there: tables have it in every row."""
CALL_FIELDS = ("tool_calls", "function_call")
OTHER_ARGUMENTS = ("parameters", "input", "args", "kwargs")
"""What other formats call the arguments of a call."""
SCHEMAS = ("parameters", "input_schema", "inputSchema")
"""What the chat APIs and MCP call the schema of a tool's arguments."""
OBJECTS = {"function", "properties", "items", "$defs", "definitions", *SCHEMAS}
"""Parts of a tool's schema that are no texts."""
TOOL = '{"type": "function", "function": {"name": ..., "parameters": {...}}}'


def message_of(item: object) -> Message:
    """A message; one of `weight` 0 is not learned. Calls get OpenAI's form, their arguments as an
    object or as JSON text, as they stand. Raises ValueError.
    """
    fields = item if isinstance(item, dict) else {}
    present = {
        key: value
        for key, value in fields.items()
        if (decoded(value) if key in CALL_FIELDS else value) not in ABSENT
    }
    role, content = present.pop("role", ""), _text(present.pop("content", fields.get("content")))
    if role == "function":
        role = "tool"
    if role == "assistant" and (calls := _calls(present)):
        present.pop("function_call", None)
        present["tool_calls"] = [
            _call(f", 'tool_calls' {number}", call) for number, call in enumerate(calls, start=1)
        ]
        content = "" if content is None else content
    if role not in ROLES or not isinstance(content, str):
        raise ValueError(
            f" holds {str(item)[:40]}; make it a list of messages, each with a 'role' (system,"
            " user, assistant or tool) and a 'content' that is a string"
        )
    learned = present.pop("weight", 1) != 0
    return Message(role, content, learned, present)


def tools_of(value: object) -> tuple[dict[str, Any], ...]:
    """Tools as chat templates take them, of a list of JSON schemas; the list, and each of them, may
    be JSON text. Raises ValueError.
    """
    items = decoded(value)
    if not isinstance(items, list):
        raise ValueError(f" is {_shown(value)}; make it a list of tools: [{TOOL}]")
    return tuple(_tool(number, item) for number, item in enumerate(items, start=1))


def without_nulls(value: Any) -> Any:
    """The value without the members of objects that are null: where calls of several tools share a
    table, it fills the arguments of each with the names of all.
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def loses_nulls(message: Message, item: Mapping[str, Any]) -> bool:
    """Whether arguments of a message's calls were null in its `item`."""
    if message.role != "assistant":
        return False
    calls = zip(message.fields.get("tool_calls", ()), _calls(item), strict=True)
    return any(call["function"]["arguments"] != _arguments(other) for call, other in calls)


def _arguments(item: Any) -> Any:
    """The arguments of a call, as they stand."""
    call = decoded(item)
    return (call.get("function") or call).get("arguments") or {}


def _text(content: Any) -> Any:
    """The text of a content that is a list of parts, as chat templates show them: one behind the
    other.
    """
    if not isinstance(content, list) or not content:
        return None if content == [] else content
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else None
            raise ValueError(
                f" has a part {str(kind or part)[:40]!r} in its 'content', and models are shown"
                ' text only; make each part {"type": "text", "text": ...}, or remove the row'
            )
    return "".join(part["text"] for part in content)


def _calls(message: Mapping[str, Any]) -> list[Any]:
    """The calls of a message as they stand, also one in the older field `function_call`."""
    calls = decoded(message.get("tool_calls"))
    if calls in ABSENT and (old := decoded(message.get("function_call"))) not in ABSENT:
        return [old]
    if calls not in ABSENT and not isinstance(calls, list):
        raise ValueError(f", 'tool_calls' is {_shown(calls)}; make it a list of calls")
    return calls or []


def _call(where: str, item: Any) -> dict[str, Any]:
    """A call in OpenAI's form, of one in that form, or of its name and arguments alone."""
    call = without_nulls(decoded(item))
    function = call.get("function", call) if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name.strip():
        raise ValueError(
            f'{where} is {_shown(item)}; make it {{"type": "function", "function": {{"name": ...,'
            ' "arguments": {...}}}'
        )
    others = [other for other in OTHER_ARGUMENTS if other in function]
    if "arguments" not in function and others:
        raise ValueError(f"{where}: rename {others[0]!r} of the call of {name!r} to 'arguments'")
    function["arguments"] = _checked(where, name, function.get("arguments", {}))
    if "function" not in call:
        outer = {key: value for key, value in call.items() if key == "id"}
        inner = {key: value for key, value in call.items() if key not in ("id", "type")}
        return {**outer, "type": "function", "function": inner}
    return {**call, "type": call.get("type", "function")}


def _checked(where: str, name: str, arguments: Any) -> Any:
    """Arguments that are an object, or JSON text of one; no text at all is none."""
    try:
        if isinstance(arguments, str):
            return arguments if arguments.strip() and parse_arguments(arguments) else {}
        parse_arguments(json.dumps(arguments))
    except TypeError as error:
        raise ValueError(f"{where}: arguments of {name!r} have no form in JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: the arguments of {name!r} are {error}") from None
    return arguments


def _tool(number: int, item: Any) -> dict[str, Any]:
    """A tool in OpenAI's form, of one in that form, or of its function alone."""
    tool = _schema(decoded(item) if isinstance(item, str) else without_nulls(item))
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f" {number} is {_shown(item)}; make it {TOOL}")
    schema = next((key for key in SCHEMAS if key in function), "")
    parameters = function.get(schema, {})
    if not isinstance(parameters, dict):
        raise ValueError(f" {number}: {schema!r} is {_shown(parameters)}; make it a JSON schema")
    inner = {
        "parameters" if key == schema else key: parameters if key == schema else value
        for key, value in function.items()
        if key != "type" or function is not tool
    }
    others = {} if function is tool else tool
    return {**others, "type": "function", "function": inner}


def decoded(value: Any) -> Any:
    """The value, or what it is JSON text of: a table whose rows differ in kind holds such texts."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _schema(value: Any) -> Any:
    """A schema whose parts may be JSON texts, where the schema can hold no text."""
    if isinstance(value, dict):
        return {
            key: _schema(decoded(item) if key in OBJECTS else item) for key, item in value.items()
        }
    return [_schema(item) for item in value] if isinstance(value, list) else value


def _shown(value: object) -> str:
    kinds: Sequence[tuple[type, str]] = ((str, "a text"), (list, "a list"), (dict, "an object"))
    kind = next((name for kind, name in kinds if isinstance(value, kind)), "no object")
    return f"{kind} ({str(value)[:40]})"
