"""How a chat template takes tools and their calls: one rendering of a probe tells each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from assay.errors import ModelError
from assay.policy.template_process import apply_template
from assay.tools import parse_arguments

ASK = {"role": "user", "content": "What is it?"}
NAME, KEY, VALUE = "look_up_weather", "place", "Ulm and around"
ARGUMENTS, RESULT = {KEY: VALUE}, "sun and clouds"
SCHEMA = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Looks it up.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "Where."}},
            "required": [KEY],
        },
    },
}
NINE, LONG = ("a1B2c3D4e", "f5G6h7I8j"), ("call_0a1B2c3D4e5F6g7H", "call_8i9J0k1L2m3N4o5P")
"""Ids of calls as Mistral's templates ask for, and as the chat APIs give them."""
PRINTED = ("None", "null")
"""What a template writes that does not look at a null."""


@dataclass(frozen=True, slots=True)
class CallStyle:
    """The form in which a chat template takes calls."""

    text_arguments: bool = False
    """Arguments go in as JSON text, where most templates take an object."""
    null_content: bool = False
    """A message that only calls has the content null, where most take an empty text."""
    ids: Literal["free", "required", "nine_characters"] = "free"
    """What the template asks of a call's id."""
    shows_tools: bool = False
    """Whether a prompt shows the tools."""
    results_need_calls: bool = False
    """Whether results are shown whole only behind a message that has their calls as fields."""


def call_style(tokenizer: Any) -> CallStyle:
    """The style of the tokenizer's chat template."""
    tools = None if _rendered(tokenizer, [ASK], [SCHEMA]) is None else [SCHEMA]
    probe = Probe(tokenizer, tools)
    shows_tools = _rendered(tokenizer, [ASK], [SCHEMA]) != _rendered(tokenizer, [ASK], None)
    forms: Iterable[tuple[Any, str | None]] = (
        (arguments, content)
        for content in ("", None)
        for arguments in (ARGUMENTS, json.dumps(ARGUMENTS))
    )
    form = next((form for form in forms if shows_call(probe.calls(*form))), None)
    if form is None:
        return CallStyle(shows_tools=shows_tools)
    arguments, _ = form
    empty, null = probe.calls(arguments, "") or "", probe.calls(arguments, None)
    prints = null and any(null.count(word) > empty.count(word) for word in PRINTED)
    return CallStyle(
        text_arguments=isinstance(arguments, str),
        null_content=shows_call(null) and null != empty and not prints,
        ids=probe.ids(*form),
        shows_tools=shows_tools,
        results_need_calls=probe.results_need_calls(*form),
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """Renders a question and a reply that calls a tool."""

    tokenizer: Any
    tools: Sequence[Mapping[str, Any]] | None

    def calls(
        self, arguments: Any, content: str | None, ids: Sequence[str] = NINE, answered: bool = False
    ) -> str | None:
        """The rendering with two calls, or with one where the template refuses two; `answered` adds
        their results. None where it refuses both.
        """
        for count in (2, 1):
            names = [{"id": name} for name in ids[:count]] or [{}] * count
            calls = [
                {**name, "type": "function", "function": {"name": NAME, "arguments": arguments}}
                for name in names
            ]
            results = [
                {"role": "tool", "name": NAME, "content": RESULT}
                | ({"tool_call_id": name["id"]} if name else {})
                for name in names
            ]
            reply = {"role": "assistant", "content": content, "tool_calls": calls}
            messages: list[Mapping[str, Any]] = [ASK, reply, *(results if answered else [])]
            if (text := _rendered(self.tokenizer, messages, self.tools)) is not None:
                return text
        return None

    def with_ids(self, arguments: Any, content: str | None) -> list[str | None]:
        """The renderings of calls and results with short ids, with long ones, and with none."""
        return [self.calls(arguments, content, ids, answered=True) for ids in (NINE, LONG, ())]

    def ids(
        self, arguments: Any, content: str | None
    ) -> Literal["free", "required", "nine_characters"]:
        """What the template asks of ids: it refuses others, or cannot tell results apart that have
        none.
        """
        nine, long, none = self.with_ids(arguments, content)
        if nine is None:
            return "free"
        if long is None:
            return "nine_characters"
        return "required" if none is None or nine == long != none else "free"

    def results_need_calls(self, arguments: Any, content: str | None) -> bool:
        """Whether the template shows a result behind calls that are fields of their message, but
        refuses or drops results behind texts, or shows them otherwise. Mistral's refuse the second
        one, DeepSeek V3.2's leaves out the block around results, and Command R7B's their numbers.
        """
        text = {"role": "assistant", "content": VALUE}
        result = {"role": "tool", "name": NAME, "tool_call_id": NINE[0], "content": RESULT}
        talk = [ASK, text, result, text, result]
        behind_text = _rendered(self.tokenizer, talk, self.tools) or ""
        nine, long, none = self.with_ids(arguments, content)
        behind_calls = nine or ""
        is_shown = behind_text.count(RESULT) == 2
        ends = [text.rpartition(RESULT)[2] for text in (behind_text, behind_calls)]
        is_numbered = none is not None and nine == long != none
        is_same = is_shown and ends[0] == ends[1] and not is_numbered
        return RESULT in behind_calls and not is_same


def shows_call(text: str | None) -> bool:
    """Whether a rendering shows the probe's call, and its arguments not as Python writes them."""
    return text is not None and NAME in text and VALUE in text and str(ARGUMENTS) not in text


def styled(messages: Sequence[Mapping[str, Any]], style: CallStyle) -> list[dict[str, Any]]:
    """The messages as a chat template of that style takes them."""
    styled_messages = [dict(message) for message in messages]
    ids: dict[str, str] = {}
    unanswered: list[str] = []
    for number, message in enumerate(styled_messages):
        calls = message.get("tool_calls")
        if message["role"] == "assistant" and isinstance(calls, list) and calls:
            message["tool_calls"] = [_styled_call(call, style) for call in calls]
            message["content"] = message["content"] or (None if style.null_content else "")
            if style.ids != "free":
                unanswered = []
                for place, call in enumerate(message["tool_calls"]):
                    old = str(call.get("id") or f"call_{number}_{place}")
                    ids[old] = call["id"] = _id(old, style)
                    unanswered.append(call["id"])
        elif message["role"] == "tool" and style.ids != "free":
            old = str(message.get("tool_call_id", ""))
            following = unanswered[0] if unanswered else _id(old, style)
            message["tool_call_id"] = ids.get(old, _id(old, style)) if old else following
            unanswered = [name for name in unanswered if name != message["tool_call_id"]]
    return styled_messages


def _styled_call(call: Mapping[str, Any], style: CallStyle) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if style.text_arguments:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _id(name: str, style: CallStyle) -> str:
    """The id, or one of nine letters and digits in its place where the template asks for that."""
    fits = len(name) == 9 and name.isascii() and name.isalnum()
    if style.ids == "required" or fits:
        return name
    return blake2b(name.encode(), digest_size=5).hexdigest()[:9]


def _rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Any) -> str | None:
    """The rendering; None where the template refuses."""
    try:
        return apply_template(tokenizer, messages, tools=tools)
    except ModelError:  # it never ends, whatever it gets
        raise
    except Exception:  # noqa: BLE001  templates refuse by an error of theirs, or fall over it
        return None
