"""OpenAI's chat completions, with vLLM's `return_token_ids`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any

from assay.agents.calls import ModelCall, RefusedCallError, Reply, model_call
from assay.agents.dialects import AnsweredBody, Body, Dialect
from assay.policy.chat import Chat

MOST_REPLIES = 64
MOST_STOPS, LONGEST_STOP = 16, 256
"""Stop strings, which are looked for after each token, and characters of one."""
KINDS = {401: "authentication_error", 404: "not_found_error", 503: "server_error",
         500: "server_error"}  # fmt: skip
"""By status, the type of an error; any other is the request's."""


def read(body: Body) -> ModelCall:
    """The call that a body asks for. Raises RefusedCallError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise RefusedCallError("`messages` is no list of objects", param="messages")
    count = 1 if body.get("n") is None else body["n"]
    if type(count) is not int or not 1 <= count <= MOST_REPLIES:
        raise RefusedCallError(f"`n` is no whole number from 1 to {MOST_REPLIES}", param="n")
    return model_call(
        messages, tools(body.get("tools")), stop=stop_of(body.get("stop")), count=count,
        reads_calls=body.get("tool_choice") != "none",
        single=body.get("parallel_tool_calls") is False,
    )  # fmt: skip


def stop_of(stop: Any) -> tuple[str, ...]:
    """Stop strings: null, one, or a list. Raises RefusedCallError."""
    words = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RefusedCallError("`stop` is no string and no list of strings", param="stop")
    if len(words) > MOST_STOPS or any(len(word) > LONGEST_STOP for word in words):
        raise RefusedCallError(
            f"`stop` has more than {MOST_STOPS} strings, or one of more than {LONGEST_STOP}"
            " characters", param="stop",
        )  # fmt: skip
    return tuple(filter(None, words))


def tools(schemas: Any) -> list[dict[str, Any]]:
    """Tools as chat templates take them. Raises RefusedCallError."""
    if not isinstance(schemas or [], list):
        raise RefusedCallError("`tools` is no list", param="tools")
    clean = []
    for schema in schemas or []:
        function = schema.get("function") if isinstance(schema, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RefusedCallError("a tool has no `function` with a `name`", param="tools")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise RefusedCallError("a tool's `parameters` are no object", param="tools")
        if not isinstance(parameters.get("properties") or {}, dict):
            raise RefusedCallError("a tool's `properties` are no object", param="tools")
        description = str(function.get("description") or "")
        clean.append({"type": "function", "function": {
            "name": function["name"], "description": description, "parameters": parameters,
        }})  # fmt: skip
    return clean


def write(answered: AnsweredBody) -> dict[str, Any]:
    """The answer as a `chat.completion`."""
    body, answer = answered.body, answered.answer
    with_ids = bool(body.get("return_token_ids"))
    choices = [
        _choice(at, reply, body, answered.chat, with_ids) for at, reply in enumerate(answer.replies)
    ]
    sampled = sum(reply.completion.length for reply in answer.replies)
    answer_body = {
        "id": f"chatcmpl-{token_hex(12)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": str(body.get("model") or answered.name),
        "choices": choices,
        "usage": {
            "prompt_tokens": len(answer.prompt),
            "completion_tokens": sampled,
            "total_tokens": len(answer.prompt) + sampled,
        },
    }
    return answer_body | ({"prompt_token_ids": list(answer.prompt)} if with_ids else {})


def _choice(at: int, reply: Reply, body: Body, chat: Chat, with_ids: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": at,
        "message": reply.message,
        "logprobs": None,
        "finish_reason": reply.finish_reason,
    }
    if body.get("logprobs"):
        choice["logprobs"] = {"content": logprobs_of(reply, chat, with_ids)}
    return choice | ({"token_ids": list(reply.completion.tokens)} if with_ids else {})


def logprobs_of(reply: Reply, chat: Chat, with_ids: bool) -> list[dict[str, Any]]:
    """Each sampled token with its log-probability, named by its id or its text."""
    completion = reply.completion
    pairs = zip(completion.tokens, completion.logprobs, strict=True)
    return [
        {"token": f"token_id:{token}" if with_ids else str(chat.tokenizer.decode([token])),
         "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in pairs
    ]  # fmt: skip


def events(answer: dict[str, Any], body: Body) -> Iterator[str]:
    """A whole answer as the chunks of a stream."""
    options = body.get("stream_options")
    with_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    head = {name: answer[name] for name in ("id", "created", "model")}
    head |= {"object": "chat.completion.chunk"} | ({"usage": None} if with_usage else {})
    for choice in answer["choices"]:
        deltas = list(_deltas(choice["message"]))
        for delta in deltas:
            part: dict[str, Any] = {"index": choice["index"], "delta": delta, "logprobs": None,
                                    "finish_reason": None}  # fmt: skip
            yield _event({**head, "choices": [part]})
        last = {**choice, "delta": {}}
        del last["message"]
        ids = {name: answer[name] for name in ("prompt_token_ids",) if name in answer}
        yield _event({**head, **ids, "choices": [last]})
    if with_usage:
        yield _event({**head, "choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "content"):
        if message.get(name):
            yield {name: message[name]}
    for at, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{"index": at, **call}]}


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def refusal(status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    """An error in OpenAI's form."""
    kind = KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


chat_completions = Dialect("/v1/chat/completions", read, write, events, refusal)
