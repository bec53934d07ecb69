"""What the formats share: calls in JSON between marks, and calls whose arguments stand as they are
between tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.strict_json import require_portable
from assay.tools import ToolCall, parse_arguments

DECODER = json.JSONDecoder()
SPACE = re.compile(r"\s*")
BETWEEN = re.compile(r"[\s,;]*")


def unclosed(mark: str, name: str = "") -> ToolCall:
    """A call of which the end is missing."""
    detail = f"The tool call is not closed: {mark} is missing."
    return ToolCall(name, status="unclosed_block", detail=detail)


def doubtful(call: ToolCall, marks: str) -> ToolCall:
    """A call of which nobody can tell where it ends, because these marks may stand in it."""
    if call.status != "ok":
        return call
    detail = (
        f"Nobody can tell where the {call.name[:60]} tool call ends: text that follows it may"
        f" belong to its arguments. Do not write {marks} in an argument, and write nothing behind"
        " a tool call."
    )
    return ToolCall(call.name, status="unclosed_block", detail=detail)


def nameless(example: str) -> ToolCall:
    """A call without the name of a tool."""
    return ToolCall(
        "", status="missing_name", detail=f"The tool call has no name: write {example}."
    )


def unreadable(error: object) -> ToolCall:
    """A call whose arguments are no valid text of their format."""
    detail = f"Error parsing tool call arguments: {str(error)[:200]}."
    return ToolCall("", status="invalid_json", detail=detail)


def named_call(fields: Any, name: str = "name", arguments: str = "arguments") -> ToolCall:
    """The call that an object of JSON is, with its name and arguments under these keys."""
    title = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(title, str) or not title:
        return nameless(f'{{"{name}": ..., "{arguments}": {{...}}}}')
    return call_with(title, fields.get(arguments), str(fields.get("id") or ""))


def call_with(name: str, values: Any, call_id: str = "") -> ToolCall:
    """A call of its name, its id, and its arguments, which are an object or its JSON text. Values
    that JSON for other programs cannot hold, as NaN, half a surrogate pair or Python's sets, are
    none.
    """
    if isinstance(values, str):
        try:
            values = parse_arguments(values)
        except ValueError as error:
            return unreadable(error)
    if values is not None and not isinstance(values, dict):
        kinds = {list: "a list", bool: "a truth value"}
        kind = kinds.get(type(values), "a number")
        detail = f"The arguments of the {name[:60]} tool call are {kind}, not an object."
        return ToolCall(name, status="wrong_arguments", detail=detail)
    try:
        require_portable([name, values, call_id])
    except (TypeError, ValueError, RecursionError) as error:
        return unreadable(error)
    return ToolCall(name, values or {}, id=call_id)


def json_values(text: str, start: int) -> tuple[list[Any], int]:
    """The list of JSON at `start`, or the objects there, and where they end; white space, commas
    and semicolons may stand between objects. Raises ValueError and RecursionError.
    """
    values, end = list[Any](), SPACE.match(text, start).end()  # type: ignore[union-attr]
    if text.startswith("[", end):
        value, end = DECODER.raw_decode(text, end)
        calls = isinstance(value, list) and all(isinstance(item, dict) for item in value)
        return value if calls else [value], end
    after = end
    while text.startswith("{", after):
        value, end = DECODER.raw_decode(text, after)
        values.append(value)
        after = BETWEEN.match(text, end).end()  # type: ignore[union-attr]
    return values, end


def json_calls(
    text: str, opens: str, closes: str, read: Callable[[Any], ToolCall] = named_call
) -> Iterator[ToolCall]:
    """The calls of each block between two marks, which holds values of JSON; without a mark that
    closes it, a block ends with its last value.

    Nobody can tell where a block ends that is no JSON, if a mark is left over: a call behind it may
    stand in its text.
    """
    end, close, is_checked = 0, -1, False
    while (start := text.find(opens, end)) >= 0:
        start = end = start + len(opens)
        try:
            values, end = json_values(text, start)
            after = SPACE.match(text, end).end()  # type: ignore[union-attr]
            problem: object = "text that is no JSON" if not values else "text after the JSON"
        except (ValueError, RecursionError) as error:
            values, after, problem = [], -1, error
        if values and text.startswith(closes, after):
            end = after + len(closes)
            yield from map(read, values)
            continue
        if close < end:
            close = text.find(closes, end) if closes else len(text)
        if close < 0:
            yield unclosed(closes)
            return
        again = text.find(opens, end, close)
        if again >= 0 and (values or not text[start:again].strip()):
            if values:
                yield unclosed(closes)
            end = again  # the mark was repeated, or the block before it was not closed
            continue
        yield unreadable(problem)
        end = close + len(closes)
        if values:
            continue
        if again >= 0 or (not is_checked and text.count(closes, end) > text.count(opens, end)):
            return
        is_checked = True


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of calls whose arguments stand as they are, without quotes or escapes."""

    opens: re.Pattern[str]
    """Begins a call; its group is the tool's name."""
    closes: str
    parameter: re.Pattern[str]
    """Begins an argument; its group is the argument's name."""
    ends: str
    """Ends an argument."""
    example: str
    """How a call begins, for the model."""
    block: str = ""
    """Begins a block of calls, which ends with the same tag and a slash."""
    literal: tuple[str, str] = ("", "")
    """May stand around an argument's value, which then ends with the second mark."""

    @property
    def block_ends(self) -> str:
        """Ends a block of calls."""
        return self.block.replace("<", "</", 1)


def tagged_calls(text: str, tags: Tags) -> Iterator[ToolCall]:
    """The calls of a text. An argument ends at the first closing tag behind which another argument
    or the end of the call stands, so it may hold the tag.

    Nobody can tell where the calls end if a closing tag is left over, or if a call goes on behind
    its end. Then none of them is certain: the first may be the beginning of longer code, and the
    others its rest.
    """
    if "\n" in text and text.count("\r\n") == text.count("\n"):
        text = text.replace("\r\n", "\n")  # the reply's line ends, not the arguments'
    calls, outside, end = list[ToolCall](), list[str](), 0
    while match := tags.opens.search(text, end):
        outside.append(text[end : match.start()])
        call, end = _tagged_call(text, match, tags)
        calls.append(call)
        if call.status != "ok":
            rest = text[match.start() :]
            break
    else:
        rest = ""
        outside.append(text[end:])
    stray = (tags.ends, tags.closes)
    if any(tag in outside[0] for tag in stray):
        detail = f"A closing tag {tags.closes} or {tags.ends} stands outside of the tool calls."
        yield ToolCall("", status="unclosed_block", detail=detail)
    left_over = any(tag in part for part in outside[1:] for tag in stray)
    if left_over or _closes_more(rest, tags) or _goes_on(calls, outside, tags):
        yield from (doubtful(call, f"{tags.ends} and {tags.closes}") for call in calls)
        return
    yield from calls
    if not rest and tags.block and (tags.block in outside[-1] or any(
        part.count(tags.block) > 1 for part in outside
    )):  # fmt: skip
        yield nameless(tags.example)


def _closes_more(text: str, tags: Tags) -> bool:
    """Whether a text has more closing than opening tags."""
    return text.count(tags.ends) > len(tags.parameter.findall(text)) or text.count(
        tags.closes
    ) > len(tags.opens.findall(text))


def _goes_on(calls: Sequence[ToolCall], outside: Sequence[str], tags: Tags) -> bool:
    """Whether code may go on behind the end of a call: in its block, on its line, or because it
    holds the beginning of another call.
    """
    is_open = False
    for number, part in enumerate(outside):
        last = number == len(calls)
        if number:
            within, mark, after = part.partition(tags.block_ends) if tags.block else (part, "", "")
            blank = not within.replace(tags.block, "").strip() if tags.block else True
            if (is_open and not blank) or not (_ends_here(within) and _ends_here(after)):
                return True
            follows = not last or (after if mark else part).strip()
            if follows and _holds_opened_call(calls[number - 1], tags):
                return True
        if tags.block and (tags.block in part or tags.block_ends in part):
            is_open = part.rfind(tags.block) > part.rfind(tags.block_ends)
    return False


def _ends_here(after: str) -> bool:
    """Whether a call may end before this text: prose begins with a space or a letter."""
    return not after or after[0].isspace() or after[0].isalnum() or after[0] == "<"


def _holds_opened_call(call: ToolCall, tags: Tags) -> bool:
    """Whether an argument holds the beginning of a call and not its end, so that the end of the
    argument may be the other call's.
    """
    return any(
        tags.parameter.search(value) is not None
        and len(tags.opens.findall(value)) > value.count(tags.closes)
        for value in call.arguments.values()
    )


def _tagged_call(text: str, match: re.Match[str], tags: Tags) -> tuple[ToolCall, int]:
    """The call that begins at a match, and where it ends."""
    name, end, arguments = match[1].strip(), match.end(), dict[str, str]()
    if not name:
        return nameless(tags.example), end
    while not text.startswith(tags.closes, end := SPACE.match(text, end).end()):  # type: ignore[union-attr]
        parameter = tags.parameter.match(text, end)
        value = _value(text, parameter.end(), tags) if parameter else None
        if parameter is None or value is None:
            return unclosed(tags.ends if parameter else tags.closes, name), end
        key = parameter[1].strip()
        if key in arguments:
            detail = f"The argument {key[:60]!r} stands twice in the {name[:60]} tool call."
            return ToolCall(name, status="wrong_arguments", detail=detail), end
        arguments[key], end = value
    return ToolCall(name, arguments), end + len(tags.closes)


def _value(text: str, start: int, tags: Tags) -> tuple[str, int] | None:
    """The argument that begins at `start`, and where its tag ends; None if it does not end."""
    before, behind = tags.literal
    if before and text.startswith(before, start):
        first = start + len(before)
        end = _value_end(text, first, behind + tags.ends, tags)
        return None if end < 0 else (text[first:end], end + len(behind + tags.ends))
    end = _value_end(text, start, tags.ends, tags)
    return None if end < 0 else (_without_line_ends(text[start:end]), end + len(tags.ends))


def _value_end(text: str, start: int, ends: str, tags: Tags) -> int:
    """Where the value ends that begins at `start`, before its tag; -1 where it does not."""
    end = text.find(ends, start)
    while end >= 0:
        after = SPACE.match(text, end + len(ends)).end()  # type: ignore[union-attr]
        if text.startswith(tags.closes, after) or tags.parameter.match(text, after):
            return end
        end = text.find(ends, end + len(ends))
    return -1


def _without_line_ends(value: str) -> str:
    """The value without the line ends between it and its tags."""
    if value.startswith("\r\n"):  # the line ends of the reply, not of the argument
        value = value.replace("\r\n", "\n")
    if value == "\n":
        return ""
    return value[1:-1] if value.startswith("\n") and value.endswith("\n") else value


def write_tagged(
    calls: Sequence[ToolCall], opens: str, closes: str, parameter: str, block: tuple[str, str]
) -> str:
    """Calls between tags; `opens` and `parameter` are templates of a name, and of a key and its
    value.
    """
    before, after = block

    def body(arguments: Mapping[str, str]) -> str:
        return "".join(parameter.format(key=key, value=value) for key, value in arguments.items())

    written = (f"{opens.format(name=call.name)}{body(call.arguments)}{closes}" for call in calls)
    return "\n".join(f"{before}{text}{after}" for text in written)


def json_text(call: ToolCall, name: str = "name", arguments: str = "arguments") -> str:
    """A call as an object of JSON."""
    return json.dumps({name: call.name, arguments: dict(call.arguments)}, ensure_ascii=False)


def arguments_text(call: ToolCall) -> str:
    """A call's arguments as JSON."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)
