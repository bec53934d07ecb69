"""Command R7B and Command A: a list of JSON with `tool_name` and `parameters`."""

from collections.abc import Sequence
from functools import partial

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import json_calls, json_text, named_call
from assay.tools import ToolCall

OPENS, CLOSES = "<|START_ACTION|>", "<|END_ACTION|>"
NAME, ARGUMENTS = "tool_name", "parameters"


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    texts = (json_text(call, name=NAME, arguments=ARGUMENTS) for call in calls)
    return f"{OPENS}[{', '.join(texts)}]{CLOSES}"


call_format("cohere", CallFormat(
    read=lambda reply: json_calls(
        reply, OPENS, CLOSES, partial(named_call, name=NAME, arguments=ARGUMENTS)
    ),
    write=write, marks=(OPENS, CLOSES),
))  # fmt: skip
