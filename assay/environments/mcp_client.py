"""A client of the Model Context Protocol for a server that is a daemon of a box: lines of JSON-RPC
over its standard input and output (modelcontextprotocol.io, revisions with a handshake).

A server's words are text for the policy and decide nothing. It may be broken, and the policy's
commands may have got at it: whatever it writes, a request ends with an answer or an McpError.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any, NamedTuple

from assay.sandbox.box import Box
from assay.sandbox.program import Ended
from assay.tools import Tool, parse_arguments
from assay.types import last_words, printable

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that begin with `initialize`, of which the first is asked for."""
MOST_BYTES = 4 << 20
"""What a server may write until it has answered a request, and what a line may have."""
MOST_REQUESTS = 64
"""What it may ask in that time."""
MOST_TOOLS, MOST_SCHEMA = 128, 64 << 10
"""Tools, and bytes of one tool's description and schema: they stand in every prompt."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SHOWN = 400
"""Characters of a server's standard error that an error shows."""
UNKNOWN_METHOD = {"code": -32601, "message": "this client offers nothing to servers"}
TEXT = {"string", ""}


class McpError(Exception):
    """A server did not answer as the protocol wants it; the message says how."""


class ToolAnswer(NamedTuple):
    """What a tool answers."""

    text: str
    is_error: bool


class McpClient:
    """The client of one server. It has one request at a time."""

    def __init__(self, box: Box, daemon: int) -> None:
        self._box, self._daemon = box, daemon
        self._unsent = b""
        """Messages that go out with the next request."""
        self._line = b""
        """The beginning of a line of which the end has not come."""
        self._skips = False
        """Whether the rest of a line that is too long is still to come."""

    async def open(self, client_version: str, seconds: float) -> None:
        """Agree on a revision of the protocol. Raises McpError."""
        client = {"name": "assay", "version": client_version}
        parameters = {"protocolVersion": VERSIONS[0], "capabilities": {}, "clientInfo": client}
        result = await self._result("initialize", parameters, seconds)
        if (version := result.get("protocolVersion")) not in VERSIONS:
            revision, ours = in_a_line(version), ", ".join(VERSIONS)
            raise McpError(f"speaks the protocol's revision {revision}, not one of {ours}")
        self._notify("notifications/initialized")

    async def tools(self, seconds: float) -> tuple[Tool, ...]:
        """The tools that it lists, of all pages. Raises McpError."""
        tools, cursors, cursor = list[Tool](), set[str](), None
        while True:
            parameters: dict[str, Any] = {"cursor": cursor} if cursor else {}
            result = await self._result("tools/list", parameters, seconds)
            listed, cursor = result.get("tools"), result.get("nextCursor")
            if not isinstance(listed, list) or not isinstance(cursor, str | None):
                raise McpError("answers tools/list without a list of tools")
            tools += map(tool_of, listed)
            if len(tools) > MOST_TOOLS or cursor in cursors:
                raise McpError(f"lists more than {MOST_TOOLS} tools, or the same page again")
            if not cursor:
                return tuple(tools)
            cursors.add(cursor)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], seconds: float) -> ToolAnswer:
        """What a tool answers to a call within `seconds`. Raises McpError."""
        try:
            values = typed(arguments, tool.input_schema or {})
        except RecursionError:
            raise McpError(f"has a tool {tool.name} with too deep a schema") from None
        parameters = {"name": tool.name, "arguments": values}
        answer = await self._request("tools/call", parameters, seconds)
        if "error" in answer:
            return ToolAnswer(error_text(answer["error"]), True)
        return answer_of(answer["result"])

    async def _result(
        self, method: str, parameters: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        """The result of a request, which is an object. Raises McpError for an error too."""
        answer = await self._request(method, parameters, seconds)
        if "error" in answer:
            raise McpError(f"answers {method} with {error_text(answer['error'])}")
        result = answer["result"]
        if not isinstance(result, dict):
            raise McpError(f"answers {method} with what is no object")
        return result

    async def _request(
        self, method: str, parameters: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        """The answer to a request: an object with a `result` or an `error`. The id of a request
        cannot be guessed, so no line written before can be taken for its answer.
        """
        key, deadline = token_hex(16), time.monotonic() + seconds
        self._unsent += message(id=key, method=method, params=parameters)
        count = requests = 0
        while True:
            data, self._unsent = self._unsent, b""
            left = max(0.001, deadline - time.monotonic())
            done = await self._box.exchange(
                self._daemon, data, wall_seconds=left, output_bytes=MOST_BYTES
            )
            if done.ended is Ended.WALL:
                if method != "initialize":  # which the protocol forbids to cancel
                    self._notify("notifications/cancelled", requestId=key)
                raise McpError(f"gave no answer to {method} within {seconds:g} s")
            if done.ended is not Ended.EXITED:
                words = last_words(done.stderr.decode("utf-8", "replace"), SHOWN)
                raise McpError(f"has ended ({done.detail})" + (f": {words}" if words else ""))
            answer = None
            for fields in map(read_message, self._lines(done.stdout)):
                if "method" in fields and isinstance(fields.get("id"), str | int | float):
                    requests += 1
                    self._unsent += message(id=fields["id"], **reply_to(fields["method"]))
                elif fields.get("id") == key and ("result" in fields) != ("error" in fields):
                    answer = fields
            if answer:
                return answer
            count += len(done.stdout)
            if count > MOST_BYTES or requests > MOST_REQUESTS:
                self._unsent = b""
                raise McpError(
                    f"wrote more than {MOST_BYTES} bytes, or {MOST_REQUESTS} requests, before an"
                    f" answer to {method}"
                )

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """The lines that have ended; the rest is kept. Those that are too long are left out."""
        *lines, last = (self._line + data).split(b"\n")
        if self._skips and lines:
            lines, self._skips = lines[1:], False
        self._skips |= len(last) > MOST_BYTES
        self._line = b"" if self._skips else last
        yield from (line for line in lines if len(line) <= MOST_BYTES)

    def _notify(self, method: str, **parameters: Any) -> None:
        """Send a notification with the next request."""
        self._unsent += message(method=method, **({"params": parameters} if parameters else {}))


def message(**fields: Any) -> bytes:
    """A message of JSON-RPC, as a line. Raises McpError."""
    return json_text({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def json_text(value: object, ensure_ascii: bool = True) -> str:
    """A value as JSON. Raises McpError for one that JSON cannot hold, and for one that is nested
    too deep: it may have been read where the stack was lower.
    """
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise McpError(f"gets or gives what JSON cannot hold ({error})") from None


def read_message(line: bytes) -> dict[str, Any]:
    """The fields of a message; none for a line that is no message."""
    try:
        fields = parse_arguments(line.decode())
    except ValueError:
        return {}
    return fields if fields.get("jsonrpc") == "2.0" else {}


def reply_to(method: object) -> dict[str, Any]:
    """The answer to a request of the server's: it gets no sampling, no roots and nobody's words."""
    return {"result": {}} if method == "ping" else {"error": UNKNOWN_METHOD}


def tool_of(listed: Any) -> Tool:
    """A tool as a server lists it. Raises McpError for one that no model can be offered."""
    name, description, schema = (
        listed.get(key) if isinstance(listed, dict) else None
        for key in ("name", "description", "inputSchema")
    )
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise McpError(
            f"lists a tool with the name {in_a_line(name)}, which no model can be offered"
        )
    if not isinstance(schema, dict) or not isinstance(description, str | None):
        raise McpError(f"lists the tool {name} without a schema of its arguments")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not (
        isinstance(properties, dict)
        and all(isinstance(each, dict | bool) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in required)
    ):
        raise McpError(f"lists the tool {name} with a schema that is no JSON schema of an object")
    schema = {"type": "object", "properties": {}, **schema}  # chat templates ask for both
    if len(json_text([description, schema])) > MOST_SCHEMA:
        raise McpError(f"lists the tool {name} with a text and schema of over {MOST_SCHEMA} bytes")
    texts = {
        key: str(each.get("description", "")) if isinstance(each, dict) else ""
        for key, each in properties.items()
    }
    return Tool(name, description or "", texts, input_schema=schema)


def typed(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, where a text stands for another type than text as the JSON that it is: some
    models write all arguments as texts. The server says what is wrong with one that is none.
    """
    properties = schema.get("properties", {})
    return {
        key: json_of(value) if isinstance(value, str) and not takes_text(properties.get(key))
        else value
        for key, value in arguments.items()
    }  # fmt: skip


def json_of(text: str) -> Any:
    """The value of JSON text; the text where it is none."""
    with contextlib.suppress(ValueError):
        fields = parse_arguments(f'{{"it": {text}}}')
        if [*fields] == ["it"]:
            return fields["it"]
    return text


def takes_text(schema: Any) -> bool:
    """Whether a schema may allow a text."""
    if not isinstance(schema, dict):
        return True
    for key in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(key), list):
            return any(map(takes_text, parts))
    kinds = schema.get("type", "string")
    return "string" in kinds if isinstance(kinds, str | list) else True


def answer_of(result: Any) -> ToolAnswer:
    """The texts of a tool's result; of other items, what they are."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return ToolAnswer("The tool's answer has no content.", True)
    texts = [text_of(item) for item in content]
    if not content and "structuredContent" in result:
        texts = [json_text(result["structuredContent"], ensure_ascii=False)]
    return ToolAnswer("\n".join(texts), result.get("isError") is True)


def text_of(item: Any) -> str:
    """The text of an item, or its kind."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "text" and isinstance(item.get("text"), str):
        return str(item["text"])
    return f"[{in_a_line(kind)}, which is no text]"


def error_text(error: Any) -> str:
    """An error of JSON-RPC."""
    fields = error if isinstance(error, dict) else {}
    return f"error {in_a_line(fields.get('code'))}: {in_a_line(fields.get('message'))}"


def in_a_line(value: object) -> str:
    """A value that a server sent, in a line."""
    text = value if isinstance(value, str) else json_text(value)
    return printable(text[:SHOWN])
