"""Functionary 3.1 and Llama 3.1's own tools: `<function=NAME>`, and the arguments in JSON."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    SPACE,
    arguments_text,
    call_with,
    json_values,
    unclosed,
    unreadable,
)
from assay.tools import ToolCall

OPENS, CLOSES = re.compile(r"<function=([\w.-]+)>"), "</function>"


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply."""
    end = 0
    while head := OPENS.search(text, end):
        try:
            values, end = json_values(text, head.end())
        except (ValueError, RecursionError) as error:
            yield unreadable(error)
            return
        end = SPACE.match(text, end).end()  # type: ignore[union-attr]
        if len(values) != 1 or not text.startswith(CLOSES, end):
            yield unclosed(CLOSES, head[1])
            return
        yield call_with(head[1], values[0])


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    return "".join(f"<function={call.name}>{arguments_text(call)}{CLOSES}" for call in calls)


call_format("functionary", CallFormat(read, write))
