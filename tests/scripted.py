"""An engine that says what it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from assay.engines.base import GenerationRequest, Sampling
from assay.types import Completion, Metrics


class ScriptedEngine:
    """Answers the j-th request for a prompt (from 0) with `script(request, j)`, token by token as
    `encode` has it.
    """

    max_concurrent = 8
    tokens_generated = 0

    def __init__(
        self,
        script: Callable[[GenerationRequest, int], str],
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self.script = script
        self.encode = encode
        self.version = 0
        self.metrics: Metrics = {}
        self.asked: Counter[tuple[int, ...]] = Counter()

    async def load(self, policy: Any, version: int) -> None:
        """Only the version changes."""
        self.version = version

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """The script's words, each token with log-probability 0."""
        member = self.asked[request.prompt]
        self.asked[request.prompt] += 1
        text = self.script(request, member)
        tokens = tuple(self.encode(text))
        kept = tokens[: sampling.max_tokens]
        versions = (self.version,) * len(kept)
        ended = "stop" if len(tokens) <= sampling.max_tokens else "length"
        return Completion(text, kept, (0.0,) * len(kept), ended, versions)  # type: ignore[arg-type]
