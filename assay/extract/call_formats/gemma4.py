"""Gemma 4: `call:NAME{KEY:VALUE}` between special tokens, with texts between `<|"|>` marks."""

import re
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    doubtful,
    nameless,
    unclosed,
    unreadable,
)
from assay.tools import ToolCall

OPENS, CLOSES, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
HEAD = re.compile(r"\s*call:([\w.-]+)\{")
KEY = re.compile(r"\s*,?\s*([\w.-]+):")
PLAIN = re.compile(r"[^,{}\[\]<]*")


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply. Where a mark is left over, an argument may hold one, so nobody can tell
    where the calls end.
    """
    end, calls, is_certain = 0, list[ToolCall](), True
    while (start := text.find(OPENS, end)) >= 0:
        is_certain &= not calls or not _holds_mark(text[end:start])
        head = HEAD.match(text, start + len(OPENS))
        if head is None:
            calls.append(nameless(f"{OPENS}call:NAME{{...}}{CLOSES}"))
            break
        call, end = _arguments(text, head[1], head.end())
        calls.append(call)
        if call.status != "ok":
            break
    if calls and calls[-1].status == "ok":
        is_certain &= not _holds_mark(text[end:])
    yield from calls if is_certain else (doubtful(call, f"{QUOTE} and {CLOSES}") for call in calls)


def _holds_mark(text: str) -> bool:
    return CLOSES in text or QUOTE in text


def _arguments(text: str, name: str, end: int) -> tuple[ToolCall, int]:
    """The call with its arguments, which begin at `end`, and where it ends."""
    arguments = dict[str, str]()
    while key := KEY.match(text, end):
        start = key.end()
        if text.startswith(QUOTE, start):
            start += len(QUOTE)
            close = text.find(QUOTE, start)
            if close < 0:
                return unclosed(QUOTE, name), end
            value, end = text[start:close], close + len(QUOTE)
        else:
            plain = PLAIN.match(text, start)
            assert plain is not None
            value, end = plain[0], plain.end()
        if key[1] in arguments:
            return unreadable(f"the argument {key[1][:60]!r} stands twice"), end
        arguments[key[1]] = value
    if not text.startswith("}" + CLOSES, end):
        return unclosed(CLOSES, name), end
    return ToolCall(name, arguments), end + 1 + len(CLOSES)


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    texts = (
        ",".join(f"{key}:{QUOTE}{value}{QUOTE}" for key, value in call.arguments.items())
        for call in calls
    )
    pairs = zip(calls, texts, strict=True)
    return "".join(f"{OPENS}call:{call.name}{{{text}}}{CLOSES}" for call, text in pairs)


call_format("gemma4", CallFormat(read, write, (OPENS, CLOSES, QUOTE), quoted=False))
