"""Mistral: `[TOOL_CALLS]`, then a list of JSON (v0.3, Nemo), or the name and `[ARGS]` (later)."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    arguments_text,
    call_with,
    json_values,
    named_call,
    nameless,
    unreadable,
)
from assay.tools import ToolCall

OPENS, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
HEAD = re.compile(r"\s*([\w.-]*)\s*(?:\[CALL_ID\]\s*(\w*)\s*)?(?:\[ARGS\])?")


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply."""
    end = 0
    while (start := text.find(OPENS, end)) >= 0:
        head = HEAD.match(text, start + len(OPENS))
        assert head is not None
        try:
            values, end = json_values(text, head.end())
        except (ValueError, RecursionError) as error:
            yield unreadable(error)
            return
        if not values:
            yield nameless(f"{OPENS}NAME{ARGUMENTS}{{...}}")
            return
        if not head[1]:
            yield from map(named_call, values)
        elif len(values) == 1:
            yield call_with(head[1], values[0], head[2] or "")
        else:
            yield unreadable("several objects of arguments")
            return


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as Mistral Small 3 and Devstral write them."""
    return "".join(f"{OPENS}{call.name}{ARGUMENTS}{arguments_text(call)}" for call in calls)


call_format("mistral", CallFormat(read, write, (OPENS, ID, ARGUMENTS)))
