"""vLLM's route of token ids, as the training client of verifiers calls it: ids in, ids out. The
client renders and parses; the policy samples as it does for any call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

from assay.agents.calls import ModelCall, RefusedCallError
from assay.agents.dialects import AnsweredBody, Body, Dialect
from assay.agents.dialects.chat_completions import logprobs_of, refusal, stop_of

UNKNOWN = ("content_parts", "features")
"""Fields of prompts with images."""


def read(body: Body) -> ModelCall:
    """The call that a body asks for. Raises RefusedCallError."""
    ids, params = body.get("token_ids"), body.get("sampling_params") or {}
    if not isinstance(ids, list) or not ids or any(type(token) is not int for token in ids):
        raise RefusedCallError("`token_ids` is no list of whole numbers", param="token_ids")
    if not isinstance(params, dict):
        raise RefusedCallError("`sampling_params` is no object", param="sampling_params")
    if params.get("n") not in (None, 1):
        raise RefusedCallError("`n` is not 1: one completion is sampled", param="n")
    for name in UNKNOWN:
        if body.get(name):
            raise RefusedCallError(f"`{name}`: a prompt is token ids of text alone", param=name)
    return ModelCall((), ids=tuple(ids), stop=stop_of(params.get("stop")))


def write(answered: AnsweredBody) -> dict[str, Any]:
    """The answer with ids, and their log-probabilities where the request asks for some."""
    params = answered.body.get("sampling_params") or {}
    (reply,) = answered.answer.replies
    content = logprobs_of(reply, answered.chat, with_ids=True)
    return {
        "request_id": f"generate-{token_hex(12)}",
        "choices": [{
            "index": 0,
            "token_ids": list(reply.completion.tokens),
            "logprobs": None if params.get("logprobs") is None else {"content": content},
            "finish_reason": reply.completion.ended,
        }],
    }  # fmt: skip


def events(answer: dict[str, Any], body: Body) -> Iterator[str]:
    """A whole answer as one event."""
    yield f"data: {json.dumps(answer)}\n\n"
    yield "data: [DONE]\n\n"


generate = Dialect("/inference/v1/generate", read, write, events, refusal)
