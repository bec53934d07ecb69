"""A completion while it is generated, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from assay.engines.base import GenerationRequest, Sampling, find_stop
from assay.types import Completion

if TYPE_CHECKING:
    from assay.policy.chat import Chat


@dataclass(slots=True, eq=False)
class PendingCompletion:
    """The tokens of a completion so far."""

    request: GenerationRequest
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens to prefill before it continues."""
        return self.request.prompt + tuple(self.tokens)

    @property
    def tokens_left(self) -> int:
        """Tokens that it may still get."""
        return self.sampling.max_tokens - len(self.tokens)

    @property
    def longest(self) -> int:
        """The largest number of tokens it may have, prompt included."""
        return len(self.request.prompt) + self.sampling.max_tokens

    def append(self, token: int, logprob: float, version: int) -> None:
        """Add a token that the weights `version` sampled."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def ended(self, how: Literal["stop", "length"], text: str) -> Completion:
        """The whole completion."""
        numbers = tuple(self.tokens), tuple(self.logprobs)
        return Completion(text, *numbers, how, tuple(self.versions))


class StopChecker:
    """Decides whether a completion has ended."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.token_texts: dict[int, str] = {}

    def completion(self, row: PendingCompletion) -> Completion | None:
        """The completion if it ends with its last token; None if it continues."""
        stop_token = row.tokens[-1] in self.chat.stop_tokens
        stop_string = bool(row.request.stop) and not stop_token and self._has_stop_string(row)
        if not stop_token and not stop_string and row.tokens_left > 0:
            return None
        text = self.chat.text(row.tokens)
        if stop_string:
            text = text[: find_stop(text, row.request.stop)[0]]
        return row.ended("stop" if stop_token or stop_string else "length", text)

    def _has_stop_string(self, row: PendingCompletion) -> bool:
        """Whether a stop string ends within the last token. Most tokens lack the last character of
        every stop string, and are not decoded again.
        """
        last, stop = row.tokens[-1], row.request.stop
        if last not in self.token_texts:
            self.token_texts[last] = self.chat.text([last])
        text = self.token_texts[last]
        if text.isascii() and text and not any(word[-1] in text for word in stop):
            return False
        # A token is a byte at least.
        window = max(len(word.encode()) for word in stop) + 4
        tail = self.chat.text(row.tokens[-window:])
        return find_stop(tail, stop)[0] < len(tail)
