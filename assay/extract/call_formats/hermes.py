"""Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3: an object of JSON between `<tool_call>` tags."""

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import json_calls, json_text

OPENS, CLOSES = "<tool_call>", "</tool_call>"

call_format("hermes", CallFormat(
    read=lambda reply: json_calls(reply, OPENS, CLOSES),
    write=lambda calls: "\n".join(f"{OPENS}\n{json_text(call)}\n{CLOSES}" for call in calls),
    marks=(OPENS, CLOSES),
))  # fmt: skip
