"""The interface of an engine: one call, one completion; it sees to it that many are written at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.types import Completion, Metrics


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn."""

    max_tokens: int
    """Longest completion in tokens, the stop token included."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus: the smallest set of tokens with at least this probability; renormalised over it."""
    top_k: int = 0
    """Only the likeliest so many tokens, before `top_p`; 0 is all."""
    min_p: float = 0.0
    """Only tokens at least this likely in proportion to the likeliest, after `top_p`."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One completion that is wanted."""

    prompt: tuple[int, ...]
    """[P] token ids."""
    seed: int
    """Names its random numbers, so that it gets the same whatever else is asked for."""
    stop: tuple[str, ...] = ()
    """Strings that end it."""


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the strings in it."""
    return text[: min((at for word in stop if (at := text.find(word)) >= 0), default=len(text))]


class Engine(Protocol):
    """Writes completions with the weights it was last given."""

    @property
    def max_concurrent(self) -> int:
        """Completions it can write at once; more wait."""

    @property
    def metrics(self) -> Metrics:
        """What there is to say of the last load."""

    async def load(self, policy: Any, version: int) -> None:
        """From the return on, write with the weights of `policy`, marked as `version`.

        What is being written goes on with them: its tokens stay, each with the version that drew
        it, and are read anew. Raises MachineError where the weights do not arrive.
        """

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """One completion; many are asked for at once, and equal prompts are read once. To cancel it
        is to give it up.

        Raises MachineError when the engine gives out, ModelError for a model that cannot be decoded
        right.
        """
