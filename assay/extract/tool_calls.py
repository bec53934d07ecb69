"""The tool calls of a reply, in the formats that models write. A call that is wrong raises nothing:
its status and detail say what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from assay.extract.thoughts import answer
from assay.tools import Tool, ToolCall


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes a call: a block, and what is inside it."""

    opens: str
    closes: str
    read: Callable[[str], ToolCall]
    """The call that the inside of a block is."""
    write: Callable[[ToolCall], str]
    """The inside of the block of a call."""

    def parse(self, reply: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """The calls of a reply, after its thoughts; in time linear in its length."""
        calls, text, end = list[ToolCall](), answer(reply) or reply, 0
        while (start := text.find(self.opens, end)) >= 0:
            end = text.find(self.closes, start + len(self.opens))
            if end < 0:
                detail = f"The tool call is not closed: {self.closes.strip()} is missing."
                calls.append(ToolCall("", status="unclosed_block", detail=detail))
                break
            block = text[start:end].rpartition(self.opens)[2]
            calls.append(_checked(self.read(block), tools))
        return tuple(calls)

    def block(self, call: ToolCall) -> str:
        """A call as a reply holds it."""
        return f"{self.opens}\n{self.write(call)}\n{self.closes.lstrip()}"


def text_format(tool: Tool) -> CallFormat:
    """Calls of one tool, whose first argument stands between its marks as it is."""
    parameter = next(iter(tool.parameters))
    return CallFormat(
        tool.opens, tool.closes,
        read=lambda block: ToolCall(tool.name, {parameter: block}),
        write=lambda call: call.arguments[parameter],
    )  # fmt: skip


def _checked(call: ToolCall, tools: Sequence[Tool]) -> ToolCall:
    """The call, with what is wrong with its name and arguments."""
    if call.status != "ok":
        return call
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        detail = f"Unknown tool {call.name[:60]!r}. The tools are: {names}."
        return replace(call, status="unknown_tool", detail=detail)
    for name in tool.parameters:
        if not isinstance(call.arguments.get(name), str):
            detail = f"Missing {name!r} argument in {tool.name} tool call."
            return replace(call, status="wrong_arguments", detail=detail)
    return call


def _read_json(block: str) -> ToolCall:
    """Hermes' form: `{"name": ..., "arguments": {...}}`."""
    try:
        fields = json.loads(block)
        arguments = fields.get("arguments", {}) if isinstance(fields, dict) else {}
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        detail = f"Error parsing tool call arguments: {str(error)[:200]}."
        return ToolCall("", status="invalid_json", detail=detail)
    name = fields.get("name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name:
        detail = 'The tool call has no name: write {"name": ..., "arguments": {...}}.'
        return ToolCall("", status="missing_name", detail=detail)
    return ToolCall(name, arguments if isinstance(arguments, dict) else {})


def _write_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)


def _read_xml(block: str) -> ToolCall:
    """Qwen3-Coder's form: `<function=NAME>`, and a `<parameter=KEY>` for each argument."""
    name, end, body = block.partition("<function=")[2].partition(">")
    body, closed, _ = body.rpartition("</function>")
    if not end or not name.strip():
        detail = "The tool call has no name: write <function=NAME>...</function>."
        return ToolCall("", status="missing_name", detail=detail)
    if not closed:
        detail = "The tool call is not closed: </function> is missing."
        return ToolCall(name.strip(), status="unclosed_block", detail=detail)
    arguments = {}
    for part in body.split("</parameter>")[:-1]:
        key, _, value = part.partition("<parameter=")[2].partition(">")
        arguments[key.strip()] = value.removeprefix("\n").removesuffix("\n")
    return ToolCall(name.strip(), arguments)


def _write_xml(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in call.arguments.items()
    )
    return f"<function={call.name}>\n{parameters}</function>"


HERMES = CallFormat("<tool_call>", "</tool_call>", _read_json, _write_json)
QWEN3_CODER = CallFormat("<tool_call>", "</tool_call>", _read_xml, _write_xml)
TEMPLATE_FORMATS = (HERMES, QWEN3_CODER)
"""The formats in which chat templates write calls."""
