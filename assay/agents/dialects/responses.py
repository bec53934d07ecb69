"""OpenAI's responses, without state: a request holds the whole conversation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

from assay.agents.calls import ModelCall, RefusedCallError, Reply, model_call
from assay.agents.canonical import text_of
from assay.agents.dialects import AnsweredBody, Body, Dialect
from assay.agents.dialects.chat_completions import refusal
from assay.agents.dialects.chat_completions import tools as chat_tools


def read(body: Body) -> ModelCall:
    """The call that a body asks for. Raises RefusedCallError."""
    if body.get("previous_response_id"):
        raise RefusedCallError(
            "no response is stored: send the whole conversation as `input`",
            param="previous_response_id",
        )
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RefusedCallError("`input` is no text and no list of objects", param="input")
    messages = list(messages_of(items))
    if instructions := body.get("instructions"):
        messages.insert(0, {"role": "system", "content": instructions})
    return model_call(
        messages, chat_tools(nested(body.get("tools"))),
        reads_calls=body.get("tool_choice") != "none",
        single=body.get("parallel_tool_calls") is False,
    )  # fmt: skip


def nested(tools: Any) -> Any:
    """Tools as the chat API has them: their function in a field of its own."""
    if not isinstance(tools, list):
        return tools
    return [{"function": tool} if isinstance(tool, dict) else tool for tool in tools]


def messages_of(items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Items as messages of the chat API. The items of one reply, thoughts, text and calls, are one
    message. Raises RefusedCallError for an item of another kind.
    """
    reply: dict[str, Any] | None = None
    for item in items:
        kind, role = item.get("type") or "message", item.get("role")
        if kind in ("reasoning", "function_call") or (kind == "message" and role == "assistant"):
            reply = reply or {"role": "assistant", "content": ""}
            _add(reply, kind, item)
            continue
        if reply:
            yield reply
            reply = None
        if kind == "function_call_output":
            output = item.get("output")
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        elif kind == "message":
            yield {"role": role, "content": item.get("content")}
        else:
            raise RefusedCallError(f"input: no item is of the type {kind!r} here", param="input")
    if reply:
        yield reply


def _add(reply: dict[str, Any], kind: str, item: Mapping[str, Any]) -> None:
    """Put an item of a reply into its message."""
    if kind == "message":
        try:
            reply["content"] += text_of(item.get("content"))
        except ValueError as error:
            raise RefusedCallError(f"input: {error}", param="input") from None
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        reply.setdefault("tool_calls", []).append(call)


def write(answered: AnsweredBody) -> dict[str, Any]:
    """The answer as a `response`."""
    body, answer = answered.body, answered.answer
    (reply,) = answer.replies
    sampled, cut = reply.completion.length, reply.finish_reason == "length"
    response = {
        "id": f"resp_{token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": str(body.get("model") or answered.name),
        "output": list(items_of(reply)),
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "usage": {
            "input_tokens": len(answer.prompt),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(answer.prompt) + sampled,
        },
    }
    if body.get("return_token_ids"):
        response["prompt_token_ids"] = list(answer.prompt)
        response["token_ids"] = list(reply.completion.tokens)
    return response


def items_of(reply: Reply) -> Iterator[dict[str, Any]]:
    """A reply as items: its thoughts, its text, its calls."""
    if reply.reasoning:
        content = [{"type": "reasoning_text", "text": reply.reasoning}]
        name = f"rs_{token_hex(12)}"
        yield {"id": name, "type": "reasoning", "summary": [], "content": content}
    if reply.content or not reply.calls:
        text = {"type": "output_text", "text": reply.content, "annotations": []}
        yield {"id": f"msg_{token_hex(12)}", "type": "message", "role": "assistant",
               "status": "completed", "content": [text]}  # fmt: skip
    for call in reply.message.get("tool_calls", ()):
        yield {"id": f"fc_{token_hex(12)}", "type": "function_call", "status": "completed",
               "call_id": call["id"], **call["function"]}  # fmt: skip


def events(response: dict[str, Any], body: Body) -> Iterator[str]:
    """A whole response as the events of a stream."""
    opening = {**response, "status": "in_progress", "output": [], "usage": None}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": opening}), ("response.in_progress", {"response": opening})
    ]  # fmt: skip
    for at, item in enumerate(response["output"]):
        parts += _item_events({"output_index": at, "item_id": item["id"]}, item)
    parts.append((f"response.{response['status']}", {"response": response}))
    for number, (kind, data) in enumerate(parts):
        content = json.dumps({"type": kind, "sequence_number": number, **data})
        yield f"event: {kind}\ndata: {content}\n\n"


def _item_events(
    place: dict[str, Any], item: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    output = {"output_index": place["output_index"]}
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }
    started = {**item, **empty.get(item["type"], {})}
    if item["type"] != "reasoning":
        started["status"] = "in_progress"
    yield "response.output_item.added", {**output, "item": started}
    if item["type"] == "message":
        part = item["content"][0]
        within = {**place, "content_index": 0}
        yield "response.content_part.added", {**within, "part": {**part, "text": ""}}
        yield "response.output_text.delta", {**within, "delta": part["text"], "logprobs": []}
        yield "response.output_text.done", {**within, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**within, "part": part}
    elif item["type"] == "function_call":
        arguments = item["arguments"]
        yield "response.function_call_arguments.delta", {**place, "delta": arguments}
        yield "response.function_call_arguments.done", {**place, "arguments": arguments}
    yield "response.output_item.done", {**output, "item": item}


responses = Dialect("/v1/responses", read, write, events, refusal)
