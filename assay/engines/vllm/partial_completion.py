"""One completion in the making, from the pieces that servers write of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from assay.engines.base import GenerationRequest, cut_at
from assay.engines.vllm.client import Chunk
from assay.types import Completion

if TYPE_CHECKING:
    from assay.policy.chat import Chat


class PartialCompletion:
    """What there is of a completion."""

    def __init__(self, request: GenerationRequest, most: int, chat: Chat) -> None:
        self.request = request
        self.most = most
        self.chat = chat
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.ended: Literal["stop", "length"] | None = None

    def add(self, chunk: Chunk, versions: Sequence[int]) -> None:
        """Go on with a chunk, whose tokens were drawn by `versions`.

        A server looks for stop strings in what it wrote itself: one that begins in the chunk before
        is found here.
        """
        self.tokens += chunk.tokens
        self.logprobs += chunk.logprobs
        self.versions += versions
        if self.request.stop and self._stopped_by(len(self.tokens)):
            end = bisect_left(range(len(self.tokens)), True, key=self._stopped_by)
            for column in (self.tokens, self.logprobs, self.versions):
                del column[end:]
            self.ended = "stop"
        elif chunk.ended == "stop":
            self.ended = "stop"
        elif len(self.tokens) >= self.most or chunk.ended == "length":
            self.ended = "length"

    def completion(self) -> Completion | None:
        """The whole; None while it goes on."""
        if self.ended is None:
            return None
        text = cut_at(self.chat.text(self.tokens), self.request.stop)
        return Completion(
            text, tuple(self.tokens), tuple(self.logprobs), self.ended, tuple(self.versions)
        )

    def _stopped_by(self, count: int) -> bool:
        """Whether the first `count` tokens hold a stop string."""
        text = self.chat.text(self.tokens[:count])
        return any(word in text for word in self.request.stop)
