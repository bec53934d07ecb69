"""DeepSeek V3 and R1 (the name, then JSON in a fence) and V3.1 (the name before the separator)."""

from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import (
    arguments_text,
    call_with,
    json_values,
    nameless,
    unclosed,
    unreadable,
)
from assay.tools import ToolCall

BLOCK, BLOCK_END, OPENS, SEPARATOR, CLOSES = (
    f"<\uff5ctool\u2581{name}\uff5c>"
    for name in ("calls\u2581begin", "calls\u2581end", "call\u2581begin", "sep", "call\u2581end")
)


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply."""
    end = 0
    while (start := text.find(OPENS, end)) >= 0:
        separator = text.find(SEPARATOR, start)
        if separator < 0:
            yield unclosed(SEPARATOR)
            return
        name, start = text[start + len(OPENS) : separator].strip(), separator + len(SEPARATOR)
        fence = text.find("```json", start, start + 120)
        line = text[start:fence].strip() if fence >= 0 else "{"
        fenced = name == "function" and not line.startswith("{") and len(line) <= 100
        if fenced:
            name, start = line, fence + len("```json")
        try:
            values, end = json_values(text, start)
        except (ValueError, RecursionError) as error:
            yield unreadable(error) if text.find(CLOSES, start) >= 0 else unclosed(CLOSES, name)
            return
        rest = text[end : end + 80].lstrip().removeprefix("```" if fenced else "").lstrip()
        if not name:
            yield nameless(f"{OPENS}NAME{SEPARATOR}{{...}}{CLOSES}")
        elif len(values) != 1 or not rest.startswith(CLOSES):
            yield unclosed(CLOSES, name)
            return
        else:
            yield call_with(name, values[0])


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as DeepSeek V3 writes them."""
    texts = (
        f"{OPENS}function{SEPARATOR}{call.name}\n```json\n{arguments_text(call)}\n```{CLOSES}"
        for call in calls
    )
    return BLOCK + "\n".join(texts) + BLOCK_END


MARKS = (BLOCK, BLOCK_END, OPENS, SEPARATOR, CLOSES)
call_format("deepseek", CallFormat(read, write, MARKS))
