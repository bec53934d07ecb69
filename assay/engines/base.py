"""The interface of an engine: one call generates one completion, and the engine batches calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from assay.config.generation import EngineSettings
from assay.config.sections import EvaluateSettings, RolloutSettings
from assay.registry import Registry
from assay.types import Completion, Metrics

if TYPE_CHECKING:  # it imports torch
    from assay.policy.load_model import Policy


MAX_LOST = 32
"""Completions lost in a row after which a server of others is given up."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of sampling, as in vLLM's SamplingParams."""

    max_tokens: int
    """Longest completion in tokens, including the stop token."""
    temperature: float = 1.0
    """0 is greedy decoding."""
    top_p: float = 1.0
    """Nucleus sampling: the smallest set of tokens whose probability reaches this, renormalised."""
    top_k: int = 0
    """Sample only from this many of the most probable tokens, before `top_p`; 0 is all."""
    min_p: float = 0.0
    """Drop tokens less probable than this share of the most probable one, after `top_p`."""


def sampling_of(settings: RolloutSettings | EvaluateSettings) -> Sampling:
    """Returns the sampling parameters in a table of settings. Training samples from all tokens, as
    the learner computes their probabilities, and so has only some of them.
    """
    names = [each.name for each in fields(Sampling) if hasattr(settings, each.name)]
    return Sampling(**{name: getattr(settings, name) for name in names})


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for one completion."""

    prompt: tuple[int, ...]
    """[P] token ids."""
    seed: int
    """Seeds this completion's random numbers, so other requests do not change it."""
    stop: tuple[str, ...] = ()
    """Stop strings."""
    rollout: object | None = None
    """Stands for its rollout as long as that lives."""
    more_turns: bool = False
    """Whether the rollout may have another turn. The prompt of that begins with this prompt and
    completion, so an engine may keep the keys and values of both."""
    lose: Callable[[int], None] | None = None
    """Called with the number of tokens of a completion that is cancelled, that the engine fails or
    that cannot be used, as far as that is known."""


def find_stop(text: str, stop: Sequence[str]) -> tuple[int, int]:
    """Returns the start and end of the first stop string in `text`. Both are `len(text)` without
    one.
    """
    places = [(start, start + len(word)) for word in stop if (start := text.find(word)) >= 0]
    return min(places, default=(len(text), len(text)))


class Engine(Protocol):
    """Generates completions with the weights of the last `load`."""

    @property
    def max_concurrent(self) -> int:
        """Says how many completions it generates at once. Further requests wait."""

    @property
    def metrics(self) -> Metrics:
        """Returns metrics of the last load."""

    @property
    def tokens_generated(self) -> int:
        """Returns the number of tokens so far. Those of running completions count if the engine
        knows them.
        """

    async def load(self, policy: Policy, version: int) -> None:
        """Loads the weights of `policy`. New requests use them once this returns.

        Running requests keep their tokens, each marked with the version that sampled it. They
        continue on the new weights after a new prefill, or finish on the old ones. Raises
        MachineError if the weights do not arrive.
        """

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generates one completion. Concurrent calls are batched, and equal prompts are prefilled
        once. Cancelling the call frees its place.

        Raises MachineError if the engine fails, and ModelError for a model that it cannot decode.
        """


@dataclass(frozen=True)
class HostedModel:
    """A model at an endpoint."""

    name: str
    not_sent: set[str] = field(default_factory=set)
    """Gets the sampling parameters that the endpoint refuses."""


M = TypeVar("M", bound="Policy | HostedModel")


@dataclass(frozen=True, slots=True)
class Opening(Generic[M]):
    """What an engine is opened with. An engine for models elsewhere takes an
    `Opening[HostedModel]`, and any other an `Opening[Policy]`.
    """

    policy: M
    """The policy whose weights generate, or the model elsewhere."""
    settings: EngineSettings
    """The table [engine]."""
    logs: Path
    """A folder for logs of servers that the engine starts."""
    seed: int
    """Seeds the engine."""
    separate_copy: bool
    """Whether it generates while the policy learns."""
    generates: bool
    """False for a run that never generates, which may have a model that cannot be decoded."""


OpenEngine = Callable[[Opening[Any]], AbstractAsyncContextManager[Engine]]
engines: Registry[OpenEngine] = Registry("engine", "assay.engines")


def engine(function: Callable[[Opening[Any]], AsyncIterator[Engine]]) -> OpenEngine:
    """Registers an engine under the function's name. The function yields the engine once, and
    closes it when it goes on.
    """
    return engines.register(asynccontextmanager(function))
