"""The tokens with which a chat template ends the assistant's turns."""

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from assay.errors import SettingsError
from assay.policy.call_style import NAME, SCHEMA, CallStyle
from assay.policy.rendering import rendered
from assay.policy.tokenizer import encode
from assay.types import Message

QUESTION, ANSWER = "a question of nobody", "an answer to nobody"
"""Messages that show what a chat template writes around others."""


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """Token ids that end a turn."""

    reply: int
    call: int
    """Of a reply that calls tools."""


def turn_ends(tokenizer: Any, style: CallStyle) -> TurnEnds:
    """The added tokens that end a reply and a call; the end-of-sequence token where the template
    uses none. GLM's write nothing behind a reply: the next role's marker ends it.

    Raises SettingsError for a template that shows no text of messages.
    """
    talk = (Message("user", QUESTION), Message("assistant", ANSWER))
    _, reply, after = rendered(tokenizer, talk, style).rpartition(ANSWER)
    if not reply:
        raise SettingsError(
            "the model's chat template shows no text of a reply; set policy.chat = 'text'"
        )
    if (end := _end(tokenizer, after)) is not None:
        return TurnEnds(end, _end_of_call(tokenizer, style, end, by_next_role=False))
    try:
        next_turn = rendered(tokenizer, (*talk, Message("user", QUESTION)), style)
    except SettingsError:
        next_turn = ""
    marker = _added(tokenizer, next_turn.partition(ANSWER)[2])
    end = tokenizer.eos_token_id if marker in (None, tokenizer.bos_token_id) else marker
    return TurnEnds(end, _end_of_call(tokenizer, style, end, by_next_role=end == marker))


def _end_of_call(tokenizer: Any, style: CallStyle, end: int, by_next_role: bool) -> int:
    """The token that ends a reply with calls: `end` where the template writes it. Otherwise the
    last token, where that closes no single call, or the one that begins the results.
    """
    calls = [{"type": "function", "function": {"name": NAME, "arguments": {}}}] * 2
    tools = {"tools": [SCHEMA]} if style.shows_tools else {}
    for count in (2, 1):
        reply = Message("assistant", "", fields={"tool_calls": calls[:count]})
        result = Message("tool", ANSWER, fields={"name": NAME})
        talk = (Message("user", QUESTION), reply)
        try:
            text = rendered(tokenizer, talk, style, **tools).rstrip()
            answered = rendered(tokenizer, (*talk, *[result] * count), style, **tools)
        except SettingsError:
            continue
        _, name, after = text.rpartition(QUESTION)[2].partition(NAME)
        tokens = encode(tokenizer, after)
        following = _added(tokenizer, answered.removeprefix(text))
        if not name or end in tokens or following == end:
            return end
        if by_next_role and answered.startswith(text) and following is not None:
            return following
        last = tokens[-1]
        return last if last in tokenizer.added_tokens_decoder and tokens.count(last) == 1 else end
    return end


def _end(tokenizer: Any, after: str) -> int | None:
    """Of the added tokens that a template writes behind a reply: the one that ends the sequence,
    where it is among the first, or the first that occurs once; None where none comes first.
    """
    tokens, added = encode(tokenizer, after.strip()), tokenizer.added_tokens_decoder
    first = [*takewhile(added.__contains__, tokens)]
    if not first or tokenizer.eos_token_id in first:
        return tokenizer.eos_token_id if first else None
    single = (token for token in tokens if token in added and tokens.count(token) == 1)
    return next(single, first[0])


def _added(tokenizer: Any, text: str) -> int | None:
    """The added token with which a text begins, after spaces."""
    first = encode(tokenizer, text.strip())[:1]
    return first[0] if {*first} & {*tokenizer.added_tokens_decoder} else None
