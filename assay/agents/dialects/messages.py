"""Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

from assay.agents.calls import ModelCall, RefusedCallError, Reply, model_call
from assay.agents.canonical import text_of
from assay.agents.dialects import AnsweredBody, Body, Dialect
from assay.agents.dialects.chat_completions import stop_of
from assay.agents.dialects.chat_completions import tools as chat_tools
from assay.policy.chat import Chat

KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large",
         500: "api_error", 503: "overloaded_error"}  # fmt: skip
"""By status, the type of an error; any other is the request's."""


def read(body: Body) -> ModelCall:
    """The call that a body asks for. Raises RefusedCallError."""
    turns, choice = body.get("messages"), body.get("tool_choice") or {}
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise RefusedCallError("`messages` is no list of objects", param="messages")
    if not isinstance(choice, dict):
        raise RefusedCallError("`tool_choice` is no object", param="tool_choice")
    try:
        messages = [message for turn in turns for message in messages_of(turn)]
    except ValueError as error:
        raise RefusedCallError(f"messages: {error}", param="messages") from None
    if body.get("system"):
        messages.insert(0, {"role": "system", "content": body["system"]})
    return model_call(
        messages, chat_tools(nested(body.get("tools"))),
        stop=stop_of(body.get("stop_sequences")), reads_calls=choice.get("type") != "none",
        single=bool(choice.get("disable_parallel_tool_use")),
    )  # fmt: skip


def nested(tools: Any) -> Any:
    """Tools as the chat API has them."""
    if not isinstance(tools, list):
        return tools
    return [
        {"function": {**tool, "parameters": tool.get("input_schema")}}
        if isinstance(tool, dict) else tool
        for tool in tools
    ]  # fmt: skip


def messages_of(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of the chat API that a turn is: each result of a tool is one of its own. Raises
    ValueError for a block of another kind.
    """
    role, content = turn.get("role"), turn.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError("the content is no text and no list of blocks")
    if role == "assistant":
        yield _reply(blocks)
        return
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        yield {"role": "tool", "tool_call_id": block.get("tool_use_id"),
               "content": text_of(block.get("content"))}  # fmt: skip
    others = [block for block in blocks if block.get("type") != "tool_result"]
    if others or not results:
        yield {"role": role, "content": text_of(others)}


def _reply(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The blocks of a reply as one message; thoughts are left out, since stored ids have them."""
    texts = [block for block in blocks if block.get("type") == "text"]
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    thoughts = [block for block in blocks if "thinking" in str(block.get("type"))]
    if len(texts) + len(uses) + len(thoughts) < len(blocks):
        raise ValueError("a block of a reply is no text, tool use or thought")
    calls = [
        {"id": use.get("id"), "type": "function",
         "function": {"name": use.get("name"), "arguments": use.get("input")}}
        for use in uses
    ]  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": text_of(texts)}
    return message | ({"tool_calls": calls} if calls else {})


def write(answered: AnsweredBody) -> dict[str, Any]:
    """The answer as a `message`."""
    body, answer = answered.body, answered.answer
    (reply,) = answer.replies
    reasons = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}
    reason, word = reasons[reply.finish_reason], stop_sequence_of(reply, body, answered.chat)
    message: dict[str, Any] = {
        "id": f"msg_{token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": str(body.get("model") or answered.name),
        "content": list(blocks_of(reply)),
        "stop_reason": "stop_sequence" if word else reason,
        "stop_sequence": word,
        "usage": {"input_tokens": len(answer.prompt), "output_tokens": reply.completion.length},
    }
    if body.get("return_token_ids"):
        message["prompt_token_ids"] = list(answer.prompt)
        message["token_ids"] = list(reply.completion.tokens)
    return message


def stop_sequence_of(reply: Reply, body: Body, chat: Chat) -> str | None:
    """The stop sequence that ended a reply; None where something else did."""
    tokens = reply.completion.tokens
    if reply.finish_reason != "stop" or (tokens and tokens[-1] in chat.stop_tokens):
        return None
    text, words = chat.text(tokens), stop_of(body.get("stop_sequences"))
    places = {word: text.find(word) for word in words if word in text}
    return min(places, key=places.__getitem__, default=None)


def blocks_of(reply: Reply) -> Iterator[dict[str, Any]]:
    """A reply as blocks: its thoughts, its text, its calls."""
    if reply.reasoning:
        yield {"type": "thinking", "thinking": reply.reasoning, "signature": ""}
    if reply.content or not reply.calls:
        yield {"type": "text", "text": reply.content}
    for name, call in zip(reply.call_ids, reply.calls, strict=True):
        yield {"type": "tool_use", "id": name, "name": call.name, "input": dict(call.arguments)}


def events(message: dict[str, Any], body: Body) -> Iterator[str]:
    """A whole message as the events of a stream."""
    opening = {**message, "content": [], "stop_reason": None,
             "usage": {**message["usage"], "output_tokens": 0}}  # fmt: skip
    yield _event("message_start", message=opening)
    for at, block in enumerate(message["content"]):
        empty, delta = _halves(block)
        yield _event("content_block_start", index=at, content_block=empty)
        yield _event("content_block_delta", index=at, delta=delta)
        yield _event("content_block_stop", index=at)
    end = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=end, usage=message["usage"])
    yield _event("message_stop")


def _halves(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A block without its content, and the delta that brings that."""
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, delta
    kind = block["type"]
    return {**block, kind: ""}, {"type": f"{kind}_delta", kind: block[kind]}


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def refusal(status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    """An error in Anthropic's form."""
    kind = KINDS.get(status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


messages = Dialect("/v1/messages", read, write, events, refusal)
