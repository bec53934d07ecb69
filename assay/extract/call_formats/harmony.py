"""gpt-oss: a message to `functions.NAME` in the harmony format, with its arguments in JSON."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import arguments_text, call_with, json_values, unreadable
from assay.tools import ToolCall

NAME, GAP = r"[\w.-]{1,100}", r"[ \t]{0,8}"
"""Bounded, so that hostile text takes time linear in its length."""
HEAD = re.compile(
    rf"(?:to=functions\.(?P<before>{NAME}){GAP}<\|channel\|>{GAP}(?:commentary|analysis)"
    rf"|<\|channel\|>{GAP}(?:commentary|analysis)[ \t]{{1,8}}to=functions\.(?P<after>{NAME}))"
    rf"{GAP}(?:<\|constrain\|>)?\w{{0,20}}{GAP}<\|message\|>"
)


def read(reply: str) -> Iterator[ToolCall]:
    """The calls of a reply; each ends its message, so what stands between them is skipped."""
    end = 0
    while head := HEAD.search(reply, end):
        try:
            values, end = json_values(reply, head.end())
        except (ValueError, RecursionError) as error:
            yield unreadable(error)
            return
        name = head["before"] or head["after"]
        rest = reply[end : end + 20].lstrip()
        if len(values) != 1 or (rest and not rest.startswith(("<|", "assistant", "to="))):
            yield unreadable("text that is no object of JSON")
            return
        yield call_with(name, values[0])


def write(calls: Sequence[ToolCall]) -> str:
    """The calls, each a message of its own."""
    head = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
    texts = (head.format(call.name) + arguments_text(call) for call in calls)
    return "<|call|><|start|>assistant".join(texts)


class Harmony(CallFormat):
    """Calls are messages in the channels of thoughts."""

    __slots__ = ()

    def without_thoughts(self, reply: str) -> str:
        """All of it."""
        return reply


call_format("harmony", Harmony(read, write, ("<|constrain|>", "<|call|>")))
