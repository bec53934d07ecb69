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
from assay.maths.masked import Mean
from assay.policy.forward import ModelOutput
from assay.registry import Registry
from assay.types import Batch, Sample

Numbers = Mapping[str, Tensor]
"""Per-token numbers [B, T] that are worth logging; the learner takes their mean under the mask."""


class Loss(Protocol):
    """From what the policy says of a batch to a loss [B, T] and numbers to log."""

    def __call__(self, output: ModelOutput, batch: Batch, /) -> tuple[Tensor, Numbers]:
        """Not reduced; positions outside `batch.mask` may hold anything."""


ComputeAdvantages = Callable[[Sequence[Sample]], list[Sample]]
"""Fills in `advantages` of the samples of one step; what it leaves out is not learned from and
counts nowhere."""


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
    learns_from: Literal["rollouts", "dialogues", "pairs"]
    """Completions of the policy, judged; or demonstrations; or a file of chosen and rejected
    completions."""
    compute_advantages: ComputeAdvantages = every_token
    """From rewards to advantages, over all samples of a step."""
    has_no_gradient: Callable[[Sample], bool] = never
    """Samples that cannot change the weights: counted in the denominator, not computed."""
    mean: Mean = "tokens"
    """Over what losses are averaged."""
    reference: bool = False
    """Whether it needs the log-probabilities of the policy as it was at the start of the stage."""
    critic: bool = False
    """Whether it needs values, from a critic that learns beside the policy."""
    needs_logprobs_first: bool = False
    """Whether credit needs values or the reference's log-probabilities."""
    entropy_gradient: bool = False
    """Whether the loss holds the entropy."""
    epochs: int = 1
    """Passes over each batch."""
    minibatches: int = 1
    """Gradient steps in one pass, each on whole groups."""
    whole_groups: bool = False
    """Whether the loss relates the samples of a group, so that they must be in one micro-batch."""
    max_resamples: int = 0
    """Times that groups whose rewards are all equal are replaced by fresh ones before the step."""
    pairs: str = ""
    """The file of pairs, for an algorithm that learns from one."""
    running_baseline: Tensor | None = None
    """What credit keeps in mind from step to step, changed in place; saved with the checkpoint."""
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
        """The algorithm for a table of settings (with `name`). Raises SettingsError for an
        impossible one.
        """
        own = {key: value for key, value in table.items() if key != "name"}
        try:
            return self.make(self.settings.model_validate(own))
        except ValidationError as error:
            raise SettingsError(
                explain(error, lambda _: self.settings.model_fields, "algorithm")
            ) from None


algorithms: Registry[Recipe] = Registry("algorithm", "assay.algorithms")


def algorithm(settings: type[S]) -> Callable[[Callable[[S], Algorithm]], Callable[[S], Algorithm]]:
    """Registers a function from settings to an Algorithm under its own name."""

    def register(make: Callable[[S], Algorithm]) -> Callable[[S], Algorithm]:
        algorithms.add(make.__name__, Recipe(settings, make, make.__doc__ or ""))
        return make

    return register


def engine_mismatch(logprobs: Tensor, batch: Batch) -> Tensor:
    """How far the learner is from the engine that wrote the batch, per token [B, T] (k3); 0 where
    they agree.
    """
    return k3(logprobs.detach(), batch.logprobs)


def rollouts_of(samples: Sequence[Sample]) -> list[int]:
    """[N] a number for the rollout of each sample, from 0: samples that are parts of one have the
    same.
    """
    names = [
        (s.group, place if s.rollout is None else f"#{s.rollout}")
        for place, s in enumerate(samples)
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def per_completion(advantages: Callable[[Tensor, Tensor], Tensor]) -> ComputeAdvantages:
    """Credit that gives each completion one advantage on all its tokens; samples of one rollout are
    one completion.

    `advantages` maps rewards [N] float32 and group ids [N] int64 to advantages [N].
    """

    def credit(samples: Sequence[Sample]) -> list[Sample]:
        if not samples:
            return []
        whose = rollouts_of(samples)
        firsts: dict[int, Sample] = {}
        for rollout, sample in zip(whose, samples, strict=True):
            firsts.setdefault(rollout, sample)
        ids = {
            group: number
            for number, group in enumerate(dict.fromkeys(sample.group for sample in samples))
        }
        rewards = torch.tensor([sample.reward for sample in firsts.values()], dtype=torch.float32)
        groups = torch.tensor([ids[sample.group] for sample in firsts.values()], dtype=torch.int64)
        values: list[float] = advantages(rewards, groups).tolist()
        return [
            replace(
                sample,
                advantages=tuple(values[rollout] if trained else 0.0 for trained in sample.mask),
            )
            for sample, rollout in zip(samples, whose, strict=True)
        ]

    return credit
