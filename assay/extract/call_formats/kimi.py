"""Kimi K2: `functions.NAME:NUMBER`, then the arguments in JSON, between special tokens."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    SPACE,
    arguments_text,
    call_with,
    json_values,
    nameless,
    unclosed,
    unreadable,
)
from assay.tools import ToolCall

BLOCK, BLOCK_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
OPENS, ARGUMENTS, CLOSES = (
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
)  # fmt: skip
HEAD = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)\s*" + re.escape(ARGUMENTS)
)


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply."""
    end = 0
    while (start := text.find(OPENS, end)) >= 0:
        head = HEAD.match(text, start + len(OPENS))
        if head is None:
            yield nameless(f"{OPENS}functions.NAME:0{ARGUMENTS}{{...}}{CLOSES}")
            return
        try:
            values, end = json_values(text, head.end())
        except (ValueError, RecursionError) as error:
            yield (
                unreadable(error)
                if text.find(CLOSES, start) >= 0
                else unclosed(CLOSES, head["name"])
            )
            return
        if len(values) != 1 or not text.startswith(CLOSES, SPACE.match(text, end).end()):  # type: ignore[union-attr]
            yield unclosed(CLOSES, head["name"])
            return
        yield call_with(head["name"], values[0], head["id"])


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    texts = (
        f"{OPENS}functions.{call.name}:{number}{ARGUMENTS}{arguments_text(call)}{CLOSES}"
        for number, call in enumerate(calls)
    )
    return BLOCK + "".join(texts) + BLOCK_END


call_format("kimi", CallFormat(read, write, (BLOCK, BLOCK_END, OPENS, ARGUMENTS, CLOSES)))
