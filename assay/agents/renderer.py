"""From a call to its prompt: stored ids stay, and only what was added is rendered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.agents.calls import ModelCall, RefusedCallError, shown_message
from assay.agents.replies import tools_of
from assay.agents.tree import CallNode
from assay.bounded import BoundedDict
from assay.errors import SettingsError
from assay.extract.call_formats import CallFormat
from assay.policy.chat import Chat, as_fields
from assay.types import Message, Turn

FORMATS: BoundedDict[tuple[Chat, str, str], CallFormat] = BoundedDict(
    64, 8, lambda part: sum(map(len, part[1:])) if isinstance(part, tuple) else 0
)
"""Formats of calls: all rollouts of a step have the same tools, and to find out takes long."""


@dataclass(frozen=True, slots=True)
class RenderedCall:
    """The prompt of a call."""

    prompt: tuple[int, ...]
    """[P] token ids."""
    conversation: tuple[Message, ...]
    """The messages that they show."""


@dataclass(slots=True)
class CallRenderer:
    """Renders the calls of one rollout."""

    chat: Chat
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the chat template gets beside messages and tools."""

    def render(self, call: ModelCall, parent: CallNode | None) -> RenderedCall:
        """The prompt of a call that continues `parent`'s reply, or begins a conversation.

        Where the template rewrites what came before, the tools changed, or the client was shown
        something else than was sampled, all is rendered anew. Raises RefusedCallError for what the
        chat template refuses.
        """
        if call.ids:
            return RenderedCall(self._within_vocabulary(call.ids), ())
        arguments = {**self.arguments, **({"tools": list(call.tools)} if call.tools else {})}
        try:
            if parent is None:
                messages = tuple(map(shown_message, call.messages))
                return RenderedCall(self.chat.encode_prompt(messages, arguments), messages)
            return self._continued(call, parent, arguments)
        except SettingsError as error:
            raise RefusedCallError(str(error), param="messages") from None

    def _continued(
        self, call: ModelCall, parent: CallNode, arguments: Mapping[str, Any]
    ) -> RenderedCall:
        place = len(parent.keys)
        new = list(map(shown_message, call.messages[place + 1 :]))
        if parent.altered:
            reply = shown_message(call.messages[place])
        else:
            reply, new = self._shown(parent), _as_results(parent, new)
        conversation = (*parent.conversation, reply, *new)
        if parent.altered or parent.tools_key != call.tools_key:
            return RenderedCall(self.chat.encode_prompt(conversation, arguments), conversation)
        turn = Turn(parent.prompt, parent.completion)
        prompt = self.chat.encode_next(turn, parent.conversation, reply, new, arguments)
        return RenderedCall(prompt, conversation)

    def _within_vocabulary(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids. Raises RefusedCallError for one that is no token of the policy's."""
        size = 0 if self.chat.tokenizer is None else len(self.chat.tokenizer)
        if wrong := [token for token in ids if not 0 <= token < size]:
            raise RefusedCallError(
                f"{wrong[0]} is none of the policy's {size} tokens", param="token_ids"
            )
        return ids

    def _shown(self, node: CallNode) -> Message:
        """A reply as a later prompt shows it where the template renders it anew."""
        named_calls = [
            {**fields, "id": call.id or name}
            for fields, call, name in zip(
                as_fields(node.calls), node.calls, node.call_ids, strict=True
            )
        ]
        if node.calls and self.chat.call_style.results_need_calls:
            return Message("assistant", "", fields={"tool_calls": named_calls})
        results = ("",) * len(node.calls)
        reply = self.chat.reply(
            Turn(node.prompt, node.completion, calls=node.calls, results=results)
        )
        by_api = "tool_calls" in reply.fields  # of a hosted model, which gives no ids
        return replace(reply, fields={"tool_calls": named_calls}) if by_api else reply

    def call_format(self, call: ModelCall) -> CallFormat | None:
        """The format in which the policy calls the tools; None without any. Raises RefusedCallError
        for a model that can call none.
        """
        if not call.tools:
            return None
        key = self.chat, call.tools_key, json.dumps(self.arguments, sort_keys=True, default=repr)
        if key not in FORMATS:
            arguments = {**self.arguments, "tools": list(call.tools)}
            try:
                FORMATS[key] = self.chat.call_format(tools_of(call.tools), arguments)
            except SettingsError as error:
                raise RefusedCallError(f"tools: {error}", param="tools") from None
        return FORMATS[key]


def _as_results(parent: CallNode, messages: Sequence[Message]) -> list[Message]:
    """Messages after a reply; each result of its calls with the name of its call, and the id that
    the policy gave it, or else the client's. A result whose id is none of theirs belongs to the
    first call that has none yet.
    """
    open_calls, results = dict(zip(parent.call_ids, parent.calls, strict=True)), []
    for message in messages:
        if message.role == "tool" and open_calls:
            name = str(message.fields.get("tool_call_id"))
            name = name if name in open_calls else next(iter(open_calls))
            call = open_calls.pop(name)
            fields = {"name": call.name, **message.fields, "tool_call_id": call.id or name}
            message = replace(message, fields=fields)
        results.append(message)
    return results
