"""LFM2: a list of calls as Python writes them, between special tokens."""

import ast
from collections.abc import Iterator, Sequence

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import call_with, unclosed, unreadable
from assay.tools import ToolCall

OPENS, CLOSES = "<|tool_call_start|>", "<|tool_call_end|>"
TRIES = 32
"""Times that a block of a reply is tried to end at a further mark."""


def read(text: str) -> Iterator[ToolCall]:
    """The calls of a reply. It is parsed, never run.

    A text among the arguments may hold the marks, so a block ends at the first mark before which it
    is Python. Of one that is none, nobody can tell where it ends if it holds more marks: a call
    behind it may stand in its text.
    """
    end, is_checked, tries = 0, False, TRIES
    while (start := text.find(OPENS, end)) >= 0:
        start += len(OPENS)
        first = stop = text.find(CLOSES, start)
        calls: list[ToolCall] | None = None
        problem = ""
        while stop >= 0 and calls is None and (tries > 0 or not problem):
            end = stop + len(CLOSES)
            try:
                calls = _calls(text[start:stop])
            except ValueError as error:
                tries -= bool(problem)
                problem = problem or str(error)
                stop = text.find(CLOSES, end)
        if calls is None:
            yield unreadable(problem) if problem else unclosed(CLOSES)
            end = first + len(CLOSES)
            if first < 0 or OPENS in text[start:first] or not (is_checked or _balanced(text[end:])):
                return
            is_checked = True
        yield from calls or ()


def _balanced(text: str) -> bool:
    return text.count(CLOSES) <= text.count(OPENS)


def _calls(source: str) -> list[ToolCall]:
    """The calls of Python's text. Raises ValueError."""
    try:
        body = ast.parse(source.strip(), mode="eval").body
        nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
        return list(map(_call, nodes))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("this is no call of a tool")
    values = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in values:
            raise ValueError("an argument without a name, or one that stands twice")
        values[keyword.arg] = ast.literal_eval(keyword.value)
    if node.args:
        raise ValueError("an argument without a name")
    return call_with(ast.unparse(node.func), values)


def write(calls: Sequence[ToolCall]) -> str:
    """The calls as a reply holds them."""
    texts = (
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in calls
    )
    return f"{OPENS}[{', '.join(texts)}]{CLOSES}"


call_format("lfm2", CallFormat(read, write, (OPENS, CLOSES)))
