"""Llama 3.1 to 3.3: a reply that is an object of JSON, with `name` and `parameters`."""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    json_text,
    json_values,
    named_call,
    unreadable,
)
from assay.tools import ToolCall

OPENS = "<|python_tag|>"
NAME = re.compile("\"name\"|'name'")
"""Stands in what is meant as a call, in JSON or as Python writes it."""


def read(reply: str) -> Iterator[ToolCall]:
    """The calls of a reply that is nothing else, or of what stands behind the mark."""
    _, mark, text = reply.rpartition(OPENS)
    text = text.strip()
    if not text.startswith("{"):
        return
    try:
        values, end = json_values(text, 0)
    except (ValueError, RecursionError) as error:
        if mark or NAME.search(text, 0, 100):
            yield unreadable(error)
        return
    for fields in values:
        keys = fields.keys() if isinstance(fields, dict) else set[str]()
        if mark or ("name" in keys and not keys.isdisjoint(("parameters", "arguments"))):
            yield named_call(fields, arguments="arguments" if "arguments" in keys else "parameters")
            if text[end:].strip():
                yield unreadable("text after the JSON")
                return


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply."""
    return "; ".join(map(partial(json_text, arguments="parameters"), calls))


call_format("llama", CallFormat(read, write, (OPENS,)))
