"""Llama-Nemotron: a list of JSON between `<TOOLCALL>` tags."""

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import json_calls, json_text

OPENS, CLOSES = "<TOOLCALL>", "</TOOLCALL>"

call_format("nemotron", CallFormat(
    read=lambda reply: json_calls(reply, OPENS, CLOSES),
    write=lambda calls: f"{OPENS}[{', '.join(map(json_text, calls))}]{CLOSES}",
    marks=(OPENS, CLOSES),
))  # fmt: skip
