"""What an algorithm is: a loss, what it learns from, and how rewards become advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from assay.config.load import explain
from assay.errors import SettingsError
from assay.maths.divergences import k3
from assay.registry import Registry
from assay.types import Batch, Sample

Numbers = Mapping[str, Tensor]
"""Per-token numbers [B, T] that are worth logging; the learner takes their mean under the mask."""


class Loss(Protocol):
    """From the policy's log-probabilities [B, T] and the batch to a loss [B, T] and numbers to log."""

    def __call__(self, logprobs: Tensor, batch: Batch, /) -> tuple[Tensor, Numbers]:
        """Not reduced; positions outside `batch.mask` may hold anything."""


Credit = Callable[[Sequence[Sample]], list[Sample]]
"""Fills in `advantages` of all samples of one step."""


def every_token(samples: Sequence[Sample]) -> list[Sample]:
    """No rewards, no advantages: every masked token counts the same."""
    return list(samples)


def never(sample: Sample) -> bool:
    """Every sample is worth its forward and backward pass."""
    return False


def no_advantage(sample: Sample) -> bool:
    """A sample whose loss and gradient are exactly 0 and need not be computed."""
    return not any(sample.advantages)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to learn, as data. The loop and the learner never ask which one it is."""

    loss: Loss
    """Per-token loss."""
    learns_from: Literal["rollouts", "dialogues"]
    """Completions of the policy, judged; or demonstrations."""
    credit: Credit = every_token
    """From rewards to advantages, over all samples of a step."""
    skips: Callable[[Sample], bool] = never
    """Samples that cannot change the weights: counted in the denominator, not computed."""
    reference: bool = False
    """Whether the loss needs the log-probabilities of the policy as it was at the start of the stage."""
    epochs: int = 1
    """Gradient steps on each batch."""
    dropout: bool = False
    """Whether dropout is on while learning; off keeps the ratio to the sampling policy exact."""


class AlgorithmSettings(BaseModel):
    """Settings of one algorithm: the table [algorithm] without `name`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


S = TypeVar("S", bound=AlgorithmSettings)


@dataclass(frozen=True)
class Recipe:
    """An algorithm as registered: its settings class and what builds it."""

    settings: type[AlgorithmSettings]
    make: Callable[[Any], Algorithm]
    __doc__: str = ""

    def build(self, table: Mapping[str, Any]) -> Algorithm:
        """The algorithm for a table of settings (with `name`). Raises SettingsError for an impossible one."""
        own = {key: value for key, value in table.items() if key != "name"}
        try:
            return self.make(self.settings.model_validate(own))
        except ValidationError as error:
            raise SettingsError(explain(error, lambda _: self.settings.model_fields, "algorithm")) from None


algorithms: Registry[Recipe] = Registry("algorithm", "assay.algorithms")


def algorithm(settings: type[S]) -> Callable[[Callable[[S], Algorithm]], Callable[[S], Algorithm]]:
    """Registers a function from settings to an Algorithm under its own name."""

    def register(make: Callable[[S], Algorithm]) -> Callable[[S], Algorithm]:
        algorithms.add(make.__name__, Recipe(settings, make, make.__doc__ or ""))
        return make

    return register


def engine_mismatch(logprobs: Tensor, batch: Batch) -> Tensor:
    """How far the learner is from the engine that wrote the batch, per token [B, T] (k3); 0 where they agree."""
    return k3(logprobs.detach(), batch.logprobs)


def per_completion(advantages: Callable[[Tensor, Tensor], Tensor]) -> Credit:
    """Credit that gives each completion one advantage on all its tokens.

    `advantages` maps rewards [N] float32 and group ids [N] int64 to advantages [N].
    """

    def credit(samples: Sequence[Sample]) -> list[Sample]:
        if not samples:
            return []
        ids = {group: number for number, group in enumerate(dict.fromkeys(sample.group for sample in samples))}
        rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
        groups = torch.tensor([ids[sample.group] for sample in samples], dtype=torch.int64)
        values: list[float] = advantages(rewards, groups).tolist()
        return [
            replace(sample, advantages=tuple(value if trained else 0.0 for trained in sample.mask))
            for sample, value in zip(samples, values, strict=True)
        ]

    return credit
