"""Conversations to tokens and back; the one place that knows a tokenizer's chat template."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import eq
from typing import Any, Literal

from assay.errors import SettingsError
from assay.extract.call_formats import CallFormat, call_formats
from assay.extract.thoughts import OPENED, THOUGHT, THOUGHT_END, answer
from assay.policy.call_style import CallStyle, call_style
from assay.policy.local_template import is_local
from assay.policy.rendering import rendered
from assay.policy.tokenizer import ANCHOR, decode_within, encode, encode_within, kept_marks
from assay.policy.turn_ends import ANSWER, QUESTION, TurnEnds, turn_ends
from assay.tasks.rows import warn_once
from assay.tools import Tool
from assay.types import Message, ToolCall, Turn

LATER_CALLS = "all but the first of several tool calls"
"""A part of a reply that a chat template may drop."""
CHANNEL = "<|channel|>"
"""A token of the harmony format."""
PROBE = "printf '%s\\n' \"$x\" <<E\n\t{a: \u00e9}\nE"
"""An argument that a chat template and the tokenizer must give back unchanged."""
PLAIN_PROBE = "ls -la"


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
    call_end_token: int
    """The one of `stop_tokens` that ends a reply with tool calls in training data."""
    call_style: CallStyle
    """The form in which the chat template takes calls."""

    def takes(self, argument: str) -> bool:
        """Whether the chat template uses an argument of this name."""
        return self.has_template and argument in str(self.tokenizer.chat_template)

    def reply(self, turn: Turn) -> Message:
        """An earlier reply, as a later prompt shows it: with the tag of a thought that its own
        prompt opened, and a mark of a call that ended it. Templates write harmony's channels anew.
        """
        tokens, marks = turn.completion.tokens, kept_marks(self.tokenizer)
        text = self.text(tokens)
        if CHANNEL in marks.values():
            return Message("assistant", answer(text))
        if self.has_template:
            text = self.opened(turn.prompt_tokens) + text
            if tokens and tokens[-1] in self.stop_tokens:
                text += marks.get(tokens[-1], "")
        return Message("assistant", text)

    def render(
        self, messages: Sequence[Message], arguments: Mapping[str, Any], asks: bool = True
    ) -> str:
        """The conversation as text, up to the next assistant turn if it `asks` for one; `arguments`
        go to the chat template. Raises SettingsError for messages that the template refuses.
        """
        if self.has_template:
            options = {"add_generation_prompt": asks, **arguments}
            return rendered(self.tokenizer, messages, self.call_style, **options)
        return "".join(message.content for message in messages)

    @property
    def takes_users_in_a_row(self) -> bool:
        """Whether a message of the user may follow another one's, or the result of a tool."""
        messages = Message("user", QUESTION), Message("user", QUESTION)
        try:
            self.render(messages, {})
        except SettingsError:
            return False
        return True

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
            tokens += self.encode_reply(message.content, ended=message.role == "assistant")
        return tokens

    def encode_next(
        self, turn: Turn, before: Sequence[Message], reply: Message, following: Sequence[Message],
        arguments: Mapping[str, Any],
    ) -> tuple[int, ...]:  # fmt: skip
        """[P] token ids of the prompt after a turn: its prompt `before` and what was sampled stay
        as they are; those of the messages `following` the `reply` are appended.

        A reply that was cut off gets what the chat template ends it with. Where the template shows
        an earlier message otherwise than it was (it drops thoughts), all is rendered again.
        """
        sampled = turn.prompt_tokens + turn.completion.tokens
        if not self.has_template:
            ended = sampled[-1] in self.stop_tokens
            texts = "".join(message.content for message in following)
            return (*sampled, *self.encode_reply("", not ended), *self.encode_reply(texts, False))
        rest, near = None, (*before[:2], *before[-2:])
        if len(near) < len(before) and self._is_local(arguments):
            with suppress(SettingsError):  # it may miss a message that is left out
                rest = self._rest(near, reply, following, arguments)
        if rest is None:
            rest = self._rest(before, reply, following, arguments)
        if rest is None:
            warn_once(
                "the chat template rewrites earlier messages (it drops thoughts, for example): what"
                " follows in such a rollout is a sample of its own"
            )
            whole = self.render((*before, reply, *following), arguments)
            return encode(self.tokenizer, whole)
        if self._is_replaced(sampled[-1], rest, arguments):
            return sampled[:-1] + encode(self.tokenizer, rest.lstrip())
        return sampled + self._after(sampled[-1], rest)

    def _is_local(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the template shows each message by itself, its neighbours and the first one."""
        template = self.tokenizer.chat_template
        is_own = isinstance(template, str) and "chat_template" not in arguments
        return is_own and self.call_style.ids == "free" and is_local(template)

    def _rest(
        self, before: Sequence[Message], reply: Message, following: Sequence[Message],
        arguments: Mapping[str, Any],
    ) -> str | None:  # fmt: skip
        """What the template writes behind a reply; None where it shows an earlier message otherwise
        than it was.
        """
        whole = self.render((*before, reply, *following), arguments)
        if "tool_calls" in reply.fields:  # what was sampled stands for them as it is
            rest = self._after_calls(reply, following, arguments)
            stays = whole.startswith(self.render(before, arguments, asks=False))
        else:
            probe = (Message("user", QUESTION), Message("assistant", ANSWER), *following)
            rest = self.render(probe, arguments).partition(ANSWER)[2]
            prompt = self.render(before, arguments)
            opened = OPENED.search(prompt)
            if opened and reply.content.startswith(opened[0]):
                prompt = prompt[: opened.start()]
            joined = prompt + reply.content + rest
            stays = joined == whole or "".join(joined.split()) == "".join(whole.split())
        return rest if stays else None

    def _after_calls(
        self, reply: Message, following: Sequence[Message], arguments: Mapping[str, Any]
    ) -> str | None:
        """What the chat template writes behind the calls of a reply, from the token that ends it;
        None where it writes the calls otherwise once they are answered.
        """
        question, end = Message("user", QUESTION), self.tokenizer.decode([self.call_end_token])
        alone = self.render((question, reply), arguments, asks=False).rstrip()
        whole = self.render((question, reply, *following), arguments)
        return whole[len(alone.removesuffix(end)) :] if whole.startswith(alone) else None

    def _is_replaced(self, last: int, rest: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the token that ended a reply gives way to the marker of another role: GLM's
        replies end with the next role's, and the model may have sampled another than comes.
        """
        stop, end = map(self.tokenizer.decode, ([last], [self.end_token]))
        is_mark = last in kept_marks(self.tokenizer)  # it closes a call of the reply's own
        if last not in self.stop_tokens or is_mark or rest.lstrip().startswith(stop):
            return False
        talk = (Message("user", QUESTION), Message("assistant", ANSWER))
        return end not in self.render(talk, arguments, asks=False).rpartition(ANSWER)[2]

    def _after(self, last: int, rest: str) -> tuple[int, ...]:
        """Token ids of what the chat template writes after a reply whose `last` token is that; the
        end token only where the reply has none.
        """
        if last not in self.stop_tokens:
            return encode_within(self.tokenizer, rest)
        stop, end = map(self.tokenizer.decode, ([last], [self.end_token]))
        for mark in (stop, end):
            if rest.lstrip().startswith(mark):
                rest = rest.lstrip().removeprefix(mark)
                break
        return encode(self.tokenizer, stop + rest)[1:]

    def call_format(self, tools: Sequence[Tool], arguments: Mapping[str, Any]) -> CallFormat:
        """The format in which the chat template writes calls of the tools: calls come back
        unchanged through the template, the tokenizer and the parser.

        Raises SettingsError where no format fits.
        """
        if not self.takes("tools"):
            raise SettingsError("the model's chat template takes no tools")
        # Some templates show one call alone, and some write no escapes.
        for value, count in ((PROBE, 2), (PROBE, 1), (PLAIN_PROBE, 2), (PLAIN_PROBE, 1)):
            calls = count * tuple(
                ToolCall(tool.name, dict.fromkeys(tool.parameters, value)) for tool in tools
            )
            text = self._shown(calls, arguments)
            forms = (call_formats[name] for name in call_formats)
            if fitting := [form for form in forms if form.parse(text, tools) == calls]:
                # of forms that read one another, the one that writes so
                return min(fitting, key=lambda form: (
                    form.write(calls) not in text, sum(mark not in text for mark in form.marks)
                ))  # fmt: skip
        raise SettingsError(
            "the model's chat template writes tool calls in a format that assay does not read;"
            " register it in a plug-in (docs/own.md)"
        )

    def _shown(self, calls: Sequence[ToolCall], arguments: Mapping[str, Any]) -> str:
        """How the chat template shows a reply that is these calls, as a completion's text; empty
        where it refuses them.
        """
        calling = Message("assistant", "", fields={"tool_calls": as_fields(calls)})
        probe = (Message("user", QUESTION), calling)
        with suppress(SettingsError):
            prompt = self.render(probe[:1], arguments)
            text = self.render(probe, arguments, asks=False)
            reply = text.removeprefix(prompt) if text.startswith(prompt) else text
            return self.text(encode(self.tokenizer, reply.rpartition(QUESTION)[2]))
        return ""

    def encode_reply(self, text: str, ended: bool = True) -> tuple[int, ...]:
        """[T] token ids of a whole reply; `ended` appends the token that ends a turn."""
        end = (self.end_token,) if ended else ()
        return (*encode_within(self.tokenizer, text), *end)

    def encode_turn(
        self, messages: Sequence[Message], reply: Message, arguments: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of a conversation [P], and those that its rendering with the reply adds [T].

        The two are cut at the token boundary that rollouts have, or where the rendering leaves the
        prompt. A rendering without a token that ends the turn gets one. Raises SettingsError for
        messages that the chat template refuses.
        """
        if not messages:
            raise SettingsError(
                "the conversation starts with the assistant; put a message of the user before it"
            )
        prompt, text = self.encode_prompt(messages, arguments), self.render(messages, arguments)
        whole = self._with_reply(messages, reply, arguments, text)
        both = encode(self.tokenizer, whole, special=not self.has_template)
        start = sum(takewhile(bool, map(eq, prompt, both)))
        if start < len(prompt) and whole.startswith(text):
            start, both = len(prompt), prompt + encode_within(self.tokenizer, whole[len(text) :])
        ended = not self.stop_tokens.isdisjoint(both[start:] if self.has_template else both[-1:])
        end = self.call_end_token if "tool_calls" in reply.fields else self.end_token
        return both[:start], both[start:] if ended else (*both[start:], end)

    def _with_reply(
        self, messages: Sequence[Message], reply: Message, arguments: Mapping[str, Any], prompt: str
    ) -> str:
        """The conversation and its reply as the chat template renders them.

        Where that does not begin with the prompt, the reply is put behind the prompt as it is. But
        what the prompt says of thoughts gives way to the rendering, unless that drops the reply's.
        """
        whole = self.render((*messages, reply), arguments, asks=False)
        left_out: list[str] = []
        for what, bare in _parts(reply):
            with suppress(SettingsError):
                if self.render((*messages, bare), arguments, asks=False) == whole:
                    left_out.append(what)
        for what in left_out:
            if what != LATER_CALLS or repr("tool_calls") not in left_out:
                warn_once(f"SFT leaves out {what} of replies: the model's chat format drops it")
        if whole.startswith(prompt):
            return whole
        probe = (*messages[:-1], replace(messages[-1], content=QUESTION))
        opening = self.render(probe, arguments).rpartition(QUESTION)[2]
        _, question, rest = self.render((*probe, reply), arguments, asks=False).rpartition(QUESTION)
        warn_once(
            f"the chat template is not prefix-true: a prompt ends in {opening[-60:]!r}, but"
            f" a reply begins {rest[:60]!r}"
        )
        dropped = THOUGHT_END.search(reply.content) and not THOUGHT_END.search(rest)
        if question and not dropped and (rest.startswith(opening) or THOUGHT.search(opening)):
            return prompt.removesuffix(opening) + rest
        opened = OPENED.search(opening)
        return prompt + (THOUGHT.sub("", reply.content, 1).lstrip() if opened else reply.content)

    def opened(self, prompt: Sequence[int]) -> str:
        """The tag of a thought that the prompt opens; empty where it opens none."""
        tag = OPENED.search(self.tokenizer.decode(prompt[-16:]))
        return tag[0] if tag else ""

    def text(self, tokens: Sequence[int]) -> str:
        """The text of completion tokens with every space, without a final stop token; of special
        tokens, only those around thoughts and tool calls are in it.
        """
        whole = tokens[:-1] if tokens and tokens[-1] in self.stop_tokens else tokens
        marks, pieces, start = kept_marks(self.tokenizer), list[str](), 0
        for at in (n for n, token in enumerate(whole) if token in marks):
            pieces += [
                decode_within(self.tokenizer, self.anchor, whole[start:at]),
                marks[whole[at]],
            ]
            start = at + 1
        return "".join([*pieces, decode_within(self.tokenizer, self.anchor, whole[start:])])


def _parts(reply: Message) -> Iterator[tuple[str, Message]]:
    """Each part of a reply that a chat template may drop, and the reply without it."""
    for name in reply.fields:
        bare = {key: value for key, value in reply.fields.items() if key != name}
        yield repr(name), replace(reply, fields=bare)
    calls = reply.fields.get("tool_calls", ())
    if calls and reply.content:
        yield "the text beside tool calls", replace(reply, content="")
    if len(calls) > 1:
        first = {**reply.fields, "tool_calls": calls[:1]}
        yield LATER_CALLS, replace(reply, fields=first)


def as_fields(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Calls as messages of chat templates hold them, in `tool_calls`."""
    functions = ({"name": call.name, "arguments": dict(call.arguments)} for call in calls)
    return [
        {"id": call.id or f"call_{number}", "type": "function", "function": function}
        for number, (call, function) in enumerate(zip(calls, functions, strict=True))
    ]


def as_results(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """What the message with each call's result has beside its text."""
    return [
        {"tool_call_id": call.id or f"call_{number}", "name": call.name}
        for number, call in enumerate(calls)
    ]


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
    eos = tokenizer.eos_token_id
    style = call_style(tokenizer) if has_template else CallStyle()
    ends = turn_ends(tokenizer, style) if has_template else TurnEnds(eos, eos)
    stops = frozenset({*stop_tokens, eos, ends.reply, ends.call})
    anchor = encode(tokenizer, ANCHOR)
    return Chat(tokenizer, stops, ends.reply, has_template, anchor, ends.call, style)
