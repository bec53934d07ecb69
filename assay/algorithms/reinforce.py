"""REINFORCE: the score function weighted by the reward, less a baseline."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from assay.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Numbers,
    algorithm,
    engine_mismatch,
    no_advantage,
    per_completion,
)
from assay.maths.advantages import centred, standardised
from assay.maths.losses import policy_gradient
from assay.types import Batch


class Settings(AlgorithmSettings):
    """The baseline."""

    baseline: Literal["none", "batch", "batch_std"] = "batch"
    """What is taken from the reward: nothing, the batch's mean, or the mean with division by the deviation."""


def _loss(logprobs: Tensor, batch: Batch) -> tuple[Tensor, Numbers]:
    return policy_gradient(logprobs, batch.advantages), {"kl_engine": engine_mismatch(logprobs, batch)}


def _advantages(rewards: Tensor, baseline: str) -> Tensor:
    match baseline:
        case "batch":
            return centred(rewards)
        case "batch_std":
            return standardised(rewards)
        case _:
            return rewards


@algorithm(Settings)
def reinforce(settings: Settings) -> Algorithm:
    """REINFORCE (Williams 1992) with the batch's mean as baseline."""
    return Algorithm(
        loss=_loss,
        learns_from="rollouts",
        credit=per_completion(lambda rewards, groups: _advantages(rewards, settings.baseline)),
        skips=no_advantage,
    )
