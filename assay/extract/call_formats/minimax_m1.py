"""MiniMax-M1, Apriel: objects of JSON, or a list of them, between `<tool_calls>` tags."""

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import json_calls, json_text

OPENS, CLOSES = "<tool_calls>", "</tool_calls>"

call_format("minimax_m1", CallFormat(
    read=lambda reply: json_calls(reply, OPENS, CLOSES),
    write=lambda calls: f"{OPENS}\n{chr(10).join(map(json_text, calls))}\n{CLOSES}",
    marks=(OPENS, CLOSES),
))  # fmt: skip
