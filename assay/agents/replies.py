"""What a client is shown of a sampled reply: its thoughts, its text and its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from assay.agents.calls import ModelCall, Reply
from assay.extract.call_formats import CallFormat
from assay.extract.thoughts import THOUGHT_END, answer, before_thought, first_thought
from assay.tools import Tool
from assay.types import Completion, ToolCall


def reply_of(completion: Completion, form: CallFormat | None, call: ModelCall) -> Reply:
    """The reply to a call. One with a call that cannot be read is text: half of its calls would
    do something else than it asks for.
    """
    text = completion.text
    if form is None or not call.reads_calls:
        return Reply(answer(text), thoughts_of(text), (), (), completion)
    body = form.without_thoughts(text) or before_thought(text)
    calls = tuple(form.read(body))
    if any(each.status != "ok" for each in calls):
        return Reply(body, thoughts_of(text), (), (), completion)
    content = _before_calls(body, form, calls) if calls else body
    delivered = calls[:1] if call.single else calls
    ids = tuple(f"call_{token_hex(12)}" for _ in delivered)
    return Reply(content, thoughts_of(text), delivered, ids, completion, delivered != calls)


def thoughts_of(text: str) -> str:
    """The thoughts of a reply; all of one that never ends them, if it has begun some."""
    thought = first_thought(text)
    if not thought and THOUGHT_END.search(text) is None and not answer(text):
        return text
    return thought.strip()


def _before_calls(body: str, form: CallFormat, calls: Sequence[ToolCall]) -> str:
    """The text before the first call; empty where nobody can tell where that begins."""
    places = [at for mark in (*form.marks, form.block(calls[0])) if (at := body.find(mark)) >= 0]
    return body[: min(places, default=0)].strip()


def tools_of(schemas: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """The tools of schemas, so far as is needed to find out in which format they are called."""
    tools = []
    for schema in schemas:
        function = schema["function"]
        properties = (function.get("parameters") or {}).get("properties") or {}
        described = {name: str(name) for name in properties}
        tools.append(Tool(function["name"], function.get("description") or "", described, "", ""))
    return tuple(tools)
