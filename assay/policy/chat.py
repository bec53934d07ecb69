"""Conversations to tokens and back; the one place that knows a tokenizer's chat template."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.errors import SettingsError
from assay.policy.tokenizer import ANCHOR, decode_within, encode, encode_within
from assay.prompts import as_dicts
from assay.types import Completion, Message

PROBE = "an answer"
"""The assistant's message that shows how the chat template ends a turn."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Encodes conversations for one tokenizer: through its chat template, or as plain text."""

    tokenizer: Any
    """A transformers tokenizer with an end-of-sequence token."""
    stop_tokens: frozenset[int]
    """Token ids that end a completion."""
    end_token: int
    """The one of them that ends a turn in training data."""
    has_template: bool
    """Whether conversations go through the chat template; else the model continues plain text."""
    anchor: tuple[int, ...]
    """Token ids that stand before the tokens to decode."""

    def takes(self, argument: str) -> bool:
        """Whether the chat template uses an argument of this name."""
        return self.has_template and argument in str(self.tokenizer.chat_template)

    def reply(self, completion: Completion) -> str:
        """An earlier reply, as a later prompt shows it."""
        return self.text(completion.tokens)

    def render(self, messages: Sequence[Message], arguments: Mapping[str, Any]) -> str:
        """The conversation up to the next assistant turn, as text; `arguments` go to the chat
        template.
        """
        if not self.has_template:
            return "".join(message.content for message in messages)
        return str(
            self.tokenizer.apply_chat_template(
                as_dicts(messages), tokenize=False, add_generation_prompt=True, **arguments
            )
        )

    def encode_prompt(
        self, messages: Sequence[Message], arguments: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """[P] token ids of the conversation, which an engine continues.

        In plain text, each assistant message ends with the end-of-sequence token.
        """
        if self.has_template:
            return encode(self.tokenizer, self.render(messages, arguments))
        first, *rest = messages
        tokens = encode(self.tokenizer, first.content, special=True)
        while len(tokens) > 1 and tokens[-1] == self.tokenizer.eos_token_id:
            tokens = tokens[:-1]
        for message in rest:
            tokens += (
                self.encode_reply(message.content)
                if message.role == "assistant"
                else encode_within(self.tokenizer, message.content)
            )
        return tokens

    def encode_reply(self, text: str, ended: bool = True) -> tuple[int, ...]:
        """[T] token ids of a whole reply; `ended` appends the token that ends a turn."""
        end = (self.end_token,) if ended else ()
        return (*encode_within(self.tokenizer, text), *end)

    def encode_turn(
        self, messages: Sequence[Message], reply: str, arguments: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of a conversation [P] and of the reply to it [T], the end of the turn included.

        The two are cut at the token boundary that rollouts have.
        """
        prompt = self.encode_prompt(messages, arguments)
        text = self.render(messages, arguments) + reply
        both = encode(self.tokenizer, text, special=not self.has_template)
        if both[: len(prompt)] != prompt:
            return prompt, self.encode_reply(reply)
        completion = both[len(prompt) :]
        ended = completion[-1:] == (self.end_token,)
        return prompt, completion if ended else (*completion, self.end_token)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of completion tokens with every space, without a final stop token."""
        whole = tokens[:-1] if tokens and tokens[-1] in self.stop_tokens else tokens
        return decode_within(self.tokenizer, self.anchor, whole)


def open_chat(
    tokenizer: Any, mode: Literal["auto", "template", "text"], stop_tokens: Iterable[int]
) -> Chat:
    """A Chat that stops at `stop_tokens` and at the tokenizer's own; `auto` uses the chat template
    if there is one.

    Raises SettingsError for `template` without one.
    """
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if mode == "template" and not has_template:
        raise SettingsError(
            "setting 'policy.chat' = 'template', but the tokenizer has no chat template; use 'text'"
        )
    has_template = has_template and mode != "text"
    how = "through its chat template" if has_template else "as plain text to continue"
    logging.getLogger(__name__).info("policy.chat = %r: the model is prompted %s", mode, how)
    end = _end_of_turn(tokenizer) if has_template else tokenizer.eos_token_id
    stops = frozenset({*stop_tokens, tokenizer.eos_token_id, end})
    return Chat(tokenizer, stops, end, has_template, encode(tokenizer, ANCHOR))


def _end_of_turn(tokenizer: Any) -> int:
    """The special token with which the chat template ends the assistant's turn; the end-of-sequence
    token where it uses none.
    """
    probe = [{"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE}]
    after = str(tokenizer.apply_chat_template(probe, tokenize=False)).rpartition(PROBE)[2].strip()
    first = encode(tokenizer, after)[:1] if after else ()
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return first[0] if first and first[0] in special else int(tokenizer.eos_token_id)
