"""The formats in which models write tool calls, one file for each family of models.

A format reads the calls of a reply and writes them. What is wrong with a call is its status: a
reply that cannot be read for certain has a call that says so. The environment decides whether the
reply's other calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from assay.extract.thoughts import answer, before_thought
from assay.registry import Registry
from assay.tools import Tool, ToolCall

MOST = 5
"""Names that an error message lists."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a family of models writes tool calls."""

    read: Callable[[str], Iterable[ToolCall]]
    """The calls of a text without thoughts, whatever the tools are; in time linear in its size."""
    write: Callable[[Sequence[ToolCall]], str]
    """Calls as a reply holds them."""
    marks: tuple[str, ...] = ()
    """The marks around calls that are special tokens of tokenizers, which decoding leaves out."""
    quoted: bool = True
    """Whether arguments are quoted, so that none of their text can be taken for another one."""

    def block(self, call: ToolCall) -> str:
        """One call as a reply holds it."""
        return self.write((call,))

    def parse(self, reply: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """The calls of a reply, each with what is wrong with its name and arguments. None is read
        that the model only thinks of; a tag of thoughts in an argument is the argument's.
        """
        text = self.without_thoughts(reply) or before_thought(reply)
        return tuple(_checked(call, tools, self.quoted) for call in self.read(text))

    def without_thoughts(self, reply: str) -> str:
        """The part of a reply that is read; formats differ where calls stand among thoughts."""
        return answer(reply, self._argument_texts)

    def _argument_texts(self, text: str) -> list[str]:
        """The arguments of the calls of a text; the text itself where nobody can tell where a call
        ends, because a thought that ends in it may be a part of that call.
        """
        calls = list(self.read(text))
        if any(call.name and call.status == "unclosed_block" for call in calls):
            return [text]
        return [text for call in calls for text in _texts(call.arguments)]


call_formats: Registry[CallFormat] = Registry("call format", "assay.extract.call_formats")


def call_format(name: str, form: CallFormat) -> None:
    """Register a format: `call_format("mine", CallFormat(read, write))`."""
    call_formats.add(name, form)


@cache
def marks() -> frozenset[str]:
    """The marks of all formats."""
    return frozenset(mark for name in call_formats for mark in call_formats[name].marks)


def text_format(tool: Tool) -> CallFormat:
    """Calls of one tool, whose first argument stands between its marks as it is."""
    from assay.extract.call_formats.reading import unclosed

    parameter = next(iter(tool.parameters))

    def read(text: str) -> Iterable[ToolCall]:
        end = 0
        while (start := text.find(tool.opens, end)) >= 0:
            end = text.find(tool.closes, start + len(tool.opens))
            if end < 0:
                yield unclosed(tool.closes.strip())
                return
            block = text[start:end].rpartition(tool.opens)[2]
            yield ToolCall(tool.name, {parameter: block})

    def write(calls: Sequence[ToolCall]) -> str:
        blocks = (
            f"{tool.opens}\n{call.arguments[parameter]}\n{tool.closes.lstrip()}" for call in calls
        )
        return "\n".join(blocks)

    return CallFormat(read, write)


def _texts(value: object) -> Iterator[str]:
    """The texts in the value of an argument."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


def _checked(call: ToolCall, tools: Sequence[Tool], quoted: bool) -> ToolCall:
    """The call, with what is wrong with its name and arguments."""
    if call.status != "ok":
        return call
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        detail = f"Unknown tool {call.name[:60]!r}. The tools are: {names}."
        return replace(call, status="unknown_tool", detail=detail)
    if detail := _wrong_arguments(call, tool, quoted):
        return replace(call, status="wrong_arguments", detail=detail)
    return call


def _wrong_arguments(call: ToolCall, tool: Tool, quoted: bool) -> str:
    """What is wrong with a call's arguments, and which ones the tool has; empty for right ones. The
    types of a JSON schema are left to who runs the tool.
    """
    arguments, title, texts = call.arguments, tool.name, tool.input_schema is None
    allowed = dict.fromkeys([*tool.parameters, *tool.required])  # a schema may only require some
    missing = [name for name in tool.required if name not in arguments
               or (texts and arguments[name] is None)]  # fmt: skip
    present = [name for name in allowed if name in arguments and name not in missing]
    unknown = [name for name in arguments if name not in allowed]
    problems = [f"Missing {name!r} argument in {title} tool call." for name in missing]
    problems += [
        f"The {name!r} argument of the {title} tool call is no text."
        for name in present
        if texts and not isinstance(arguments[name], str)
    ]
    if not problems and (quoted or not unknown):
        return ""
    if unknown:
        problems.append(f"The {title} tool has no argument {_names(unknown)}.")
    problems.append(f"It takes {_names([*allowed]) or 'none'}.")
    if unknown and present and not quoted:  # it may be the rest of an argument that holds tags
        problems.append(
            f"If that text belongs to {_names(present)}, write it without the tags of arguments."
        )
    return " ".join(problems)


def _names(names: Sequence[str]) -> str:
    """The first of some names, quoted."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(repr(name[:60]) for name in names[:MOST]) + more
