"""Functionary 3.2: `>>>NAME` on a line, and the arguments in JSON; `>>>all` is for the user."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    arguments_text,
    call_with,
    json_values,
    unreadable,
)
from assay.tools import ToolCall

OPENS = re.compile(r"(?:\A|>>>)\s*(?!all\b)([\w.-]+)\n(?=\{)")
"""The prompt ends with the first mark."""


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply."""
    end = 0
    while head := OPENS.search(text, end):
        try:
            values, end = json_values(text, head.end())
        except (ValueError, RecursionError) as error:
            yield unreadable(error)
            return
        rest = text[end : end + 10].strip()
        if len(values) != 1 or (rest and not rest.startswith(">>>")):
            yield unreadable("text after the JSON")
            return
        yield call_with(head[1], values[0])


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them, behind the mark that ends the prompt."""
    return ">>>".join(f"{call.name}\n{arguments_text(call)}" for call in calls)


call_format("functionary_v3", CallFormat(read, write))
