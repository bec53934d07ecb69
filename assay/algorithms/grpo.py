"""GRPO: the group of completions of one task is its own baseline; a clipped ratio allows several steps on a batch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from assay.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Numbers,
    algorithm,
    engine_mismatch,
    never,
    no_advantage,
    per_completion,
)
from assay.maths.advantages import Scale, group_centred
from assay.maths.divergences import k1, k2, k3
from assay.maths.losses import clipped, clipped_surrogate
from assay.types import Batch

ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


class Settings(AlgorithmSettings):
    """Defaults are the field's consensus: no KL term, asymmetric clip, tokens of the whole step weigh the same."""

    scale: Scale = "group"
    """What the centred reward is divided by: its group's standard deviation, the batch's, or nothing."""
    floor: PositiveFloat = 1e-4
    """A standard deviation under this counts as zero: the group teaches nothing."""
    clip_low: PositiveFloat = 0.2
    """Ratios under 1 - clip_low are clipped."""
    clip_high: PositiveFloat = 0.28
    """Ratios over 1 + clip_high are clipped."""
    kl: float = Field(0.0, ge=0)
    """Weight of the divergence from the policy as it was at the start of the stage."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the divergence is estimated; k3 is unbiased and never negative."""
    epochs: PositiveInt = 1
    """Gradient steps on each batch."""


@algorithm(Settings)
def grpo(settings: Settings) -> Algorithm:
    """Group relative policy optimisation (arXiv:2402.03300), token mean and clip-higher of DAPO (2503.14476)."""

    def surrogate(logprobs: Tensor, batch: Batch) -> tuple[Tensor, Numbers]:
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        bounds = (settings.clip_low, settings.clip_high)
        loss = clipped_surrogate(logprobs, old, batch.advantages, *bounds)
        stopped = clipped(logprobs.detach(), old, batch.advantages, *bounds)
        return loss, {"clipped": stopped, "kl_engine": engine_mismatch(logprobs, batch)}

    def near_reference(logprobs: Tensor, batch: Batch) -> tuple[Tensor, Numbers]:
        loss, numbers = surrogate(logprobs, batch)
        assert batch.reference_logprobs is not None
        divergence = ESTIMATORS[settings.kl_estimator](logprobs, batch.reference_logprobs)
        return loss + settings.kl * divergence, {**numbers, "kl": divergence.detach()}

    return Algorithm(
        loss=near_reference if settings.kl else surrogate,
        learns_from="rollouts",
        credit=per_completion(lambda rewards, groups: group_centred(rewards, groups, settings.scale, settings.floor)),
        skips=never if settings.kl else no_advantage,
        reference=settings.kl > 0,
        epochs=settings.epochs,
    )
