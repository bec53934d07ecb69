"""One call of the policy, whatever dialect it came in: what is asked, and what is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.agents.canonical import ROLES, arguments_of, functions_of, text_of
from assay.errors import UserError
from assay.files import encodable
from assay.types import Completion, Message, ToolCall

FIELDS = {"tool": ("tool_call_id", "name"), "assistant": ("reasoning_content",)}
"""By role, what chat templates read of a message beside its text and calls."""


class RefusedCallError(UserError):
    """A call that is answered with an error of `status`; `code` and `param` say which, in the words
    of OpenAI's API.
    """

    def __init__(
        self, message: str, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What a client asks for."""

    messages: tuple[Mapping[str, Any], ...]
    """As chat APIs have them; none where the client has rendered them."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Schemas, as chat templates take them."""
    reads_calls: bool = True
    """False with `tool_choice` "none": a reply's calls stay text."""
    single: bool = False
    """Whether a reply may have one call only (`parallel_tool_calls`)."""
    stop: tuple[str, ...] = ()
    count: int = 1
    """How many replies."""
    tools_key: str = ""
    """The tools as a text that is equal for equal ones; empty without any."""
    ids: tuple[int, ...] = ()
    """[P] token ids of a prompt that the client has rendered; empty where it sends messages."""

    @property
    def call_ids(self) -> frozenset[str]:
        """The ids of the calls in its messages, and of those that results belong to."""
        calls = [each for message in self.messages if isinstance(message.get("tool_calls"), list)
                 for each in message["tool_calls"]]  # fmt: skip
        ids = [each.get("id") for each in calls if isinstance(each, dict)]
        ids += [message.get("tool_call_id") for message in self.messages]
        return frozenset(each for each in ids if isinstance(each, str))


@dataclass(frozen=True, slots=True)
class Reply:
    """One sampled reply, as a client is shown it."""

    content: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    call_ids: tuple[str, ...]
    completion: Completion
    lacks_calls: bool = False
    """Whether more calls were sampled than the client may have."""

    @property
    def finish_reason(self) -> str:
        """Why it ended, in the words of the chat API."""
        return "tool_calls" if self.calls else self.completion.ended

    @property
    def message(self) -> dict[str, Any]:
        """The reply as a message of the chat API."""
        calls = [
            {"id": name, "type": "function",
             "function": {"name": call.name,
                          "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}}
            for name, call in zip(self.call_ids, self.calls, strict=True)
        ]  # fmt: skip
        message: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if not calls:
            message["content"] = self.content
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message | ({"tool_calls": calls} if calls else {})


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a call gets: its replies, all to one prompt."""

    prompt: tuple[int, ...]
    """[P] token ids."""
    replies: tuple[Reply, ...]


def model_call(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **changes: Any
) -> ModelCall:
    """A call of messages in the chat API's form. Raises RefusedCallError without any."""
    if not messages:
        raise RefusedCallError("`messages` is empty", param="messages")
    tools_key = json.dumps(tools, sort_keys=True) if tools else ""
    return ModelCall(tuple(messages), tuple(tools), tools_key=tools_key, **changes)


def shown_message(message: Mapping[str, Any]) -> Message:
    """A client's message as chat templates take it. Raises RefusedCallError for a role that none
    has.
    """
    role = ROLES.get(message["role"], message["role"])
    if role not in ("system", "user", "assistant", "tool"):
        raise RefusedCallError(f"messages: no role is {role!r}", param="messages")
    fields: dict[str, Any] = {
        name: message[name] for name in FIELDS.get(role, ()) if isinstance(message.get(name), str)
    }
    if role == "assistant" and (functions := functions_of(message)):
        ids = [call.get("id") for call in message.get("tool_calls") or ()]
        ids += [None] * (len(functions) - len(ids))
        fields["tool_calls"] = [
            {"id": str(ids[at] or f"call_{at}"), "type": "function",
             "function": {"name": each["name"], "arguments": arguments_of(each.get("arguments"))}}
            for at, each in enumerate(functions)
        ]  # fmt: skip
    return Message(role, encodable(text_of(message.get("content"))), fields=fields)
