"""An agent before a model at another endpoint, which gives no token ids: for evaluations."""

from __future__ import annotations

import json
from typing import Any

from assay.agents.calls import model_call
from assay.agents.canonical import canonical
from assay.agents.renderer import CallRenderer
from assay.agents.replies import reply_of
from assay.agents.tree import CallNode
from assay.engines.openai import hosted_chat
from assay.types import Completion
from tests.agents.served import BASH, LS, USER


def test_a_hosted_model_gets_its_calls_back_in_the_apis_fields_with_their_results() -> None:
    renderer = CallRenderer(hosted_chat("auto"))
    call = model_call([USER], [BASH])
    first = renderer.render(call, None)
    completion = Completion(f"I look.\n{LS}", (), (), "stop", (), counted=9)
    reply = reply_of(completion, renderer.call_format(call), call)
    node = CallNode(0, None, (canonical(USER),), "", call.tools_key, first.prompt, completion,
                    first.conversation, reply.calls, reply.call_ids)  # fmt: skip
    result = {"role": "tool", "tool_call_id": reply.call_ids[0], "content": "a.py"}
    after = model_call([USER, reply.message, result], [BASH])
    sent: dict[str, Any] = json.loads(bytes(renderer.render(after, node).prompt))
    _, assistant, tool = sent["messages"]
    assert assistant["content"] == "I look.\n"
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"] == reply.call_ids[0]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}
    assert sent["tools"] == [BASH]
