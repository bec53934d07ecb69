"""The interface of an engine: prompts in, completions out the moment they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.types import Completion


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
class Request:
    """One prompt and how many completions it gets."""

    prompt: tuple[int, ...]
    """[P] token ids."""
    count: int
    """Completions wanted."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion."""
    seed: int | None = None
    """Names its random numbers, so that it gets the same whatever else is asked for; None: its place does."""


@dataclass(frozen=True, slots=True)
class Written:
    """A finished completion and whose it is."""

    request: int
    """Index of the request."""
    member: int
    """Index within the request's group."""
    completion: Completion
    """What was written."""


class Engine(Protocol):
    """Writes completions with the weights it was last given."""

    async def load(self, policy: Any, version: int) -> None:
        """From now on write with the weights of `policy`, marked as `version`."""

    def generate(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> AsyncIterator[Written]:
        """All completions, in the order they end. Equal arguments and weights give equal completions."""
