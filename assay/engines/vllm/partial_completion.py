"""A completion that is generated in chunks, possibly by several servers and weight versions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from assay.engines.base import GenerationRequest, find_stop
from assay.engines.vllm.client import Chunk
from assay.types import Completion

if TYPE_CHECKING:
    from assay.policy.chat import Chat


class PartialCompletion:
    """The tokens of a completion so far."""

    def __init__(self, request: GenerationRequest, max_tokens: int, chat: Chat) -> None:
        self.request = request
        self.max_tokens = max_tokens
        self.chat = chat
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.ended: Literal["stop", "length"] | None = None

    def add(self, chunk: Chunk, versions: Sequence[int]) -> None:
        """Append a chunk whose tokens were sampled by the weights `versions`.

        A server looks for stop strings in its own chunk only; one that spans two chunks is found
        here.
        """
        self.tokens += chunk.tokens
        self.logprobs += chunk.logprobs
        self.versions += versions
        if self.request.stop and self._has_stop_string(len(self.tokens)):
            end = bisect_left(range(len(self.tokens)), True, key=self._has_stop_string)
            for column in (self.tokens, self.logprobs, self.versions):
                del column[end:]
            self.ended = "stop"
        elif chunk.ended == "stop":
            self.ended = "stop"
        elif len(self.tokens) >= self.max_tokens or chunk.ended == "length":
            self.ended = "length"

    def completion(self) -> Completion | None:
        """The whole completion; None while it is unfinished."""
        if self.ended is None:
            return None
        text = self.chat.text(self.tokens)
        text = text[: find_stop(text, self.request.stop)[0]]
        return Completion(
            text, tuple(self.tokens), tuple(self.logprobs), self.ended, tuple(self.versions)
        )

    def _has_stop_string(self, count: int) -> bool:
        """Whether the text of the first `count` tokens contains a stop string."""
        text = self.chat.text(self.tokens[:count])
        return find_stop(text, self.request.stop)[0] < len(text)
