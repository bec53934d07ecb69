"""An engine that says what it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from assay.engines.base import Request, Sampling, Written
from assay.types import Completion


class ScriptedEngine:
    """Answers prompt number i, member j, with `script(request, j)`, token by token as `encode` has it."""

    def __init__(self, script: Callable[[Request, int], str], encode: Callable[[str], Sequence[int]]) -> None:
        self.script = script
        self.encode = encode
        self.version = 0

    async def load(self, policy: Any, version: int) -> None:
        """Only the version changes."""
        self.version = version

    async def generate(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> AsyncIterator[Written]:
        """The script's words, each token with log-probability 0."""
        for index, request in enumerate(requests):
            for member in range(request.count):
                text = self.script(request, member)
                tokens = tuple(self.encode(text))
                ended = "stop" if len(tokens) <= sampling.max_tokens else "length"
                kept = tokens[: sampling.max_tokens]
                yield Written(index, member, Completion(text, kept, (0.0,) * len(kept), ended, self.version))  # type: ignore[arg-type]
