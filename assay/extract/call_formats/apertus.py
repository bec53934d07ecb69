"""Apertus: a list of JSON, each object with the tool's name as its only key."""

import json
from collections.abc import Sequence
from typing import Any

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import call_with, json_calls, nameless
from assay.tools import ToolCall

OPENS, CLOSES = "<|tools_prefix|>", "<|tools_suffix|>"


def read_object(fields: Any) -> ToolCall:
    """The call that `{"NAME": {...}}` is."""
    if not isinstance(fields, dict) or len(fields) != 1:
        return nameless('{"NAME": {...}}')
    return call_with(*next(iter(fields.items())))


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    objects = [{call.name: dict(call.arguments)} for call in calls]
    return f"{OPENS}{json.dumps(objects, ensure_ascii=False)}{CLOSES}"


call_format("apertus", CallFormat(
    read=lambda reply: json_calls(_closed(reply), OPENS, CLOSES, read_object),
    write=write, marks=(OPENS, CLOSES),
))  # fmt: skip


def _closed(text: str) -> str:
    """The text with the mark behind its last call, which is the token that ends such a reply."""
    return text if text.rstrip().endswith(CLOSES) or OPENS not in text else text + CLOSES
