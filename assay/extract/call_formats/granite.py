"""Granite 3 and Phi-4-mini: a list of JSON behind `<|tool_call|>`."""

from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import json_calls, json_text
from assay.tools import ToolCall

OPENS, CLOSES = "<|tool_call|>", "<|/tool_call|>"


def read(reply: str) -> Iterator[ToolCall]:
    """The calls of a reply; Granite writes no mark behind them."""
    return json_calls(reply, OPENS, CLOSES if CLOSES in reply else "")


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as Granite writes them."""
    return f"{OPENS}[{', '.join(map(json_text, calls))}]"


call_format("granite", CallFormat(read, write, (OPENS, CLOSES)))
