"""CISPO: the clipped ratio is a weight without gradient, so no token loses its gradient.

L_t = -sg(clip(r_t, 1 - clip_low, 1 + clip_high)) A log p(y_t)

r_t is p / p_old, or with `anchor = "sampler"` p / p_engine, so that one clipped weight corrects for
both the engine and older weights.
"""

from functools import partial
from typing import Literal

from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.policy_gradient import build, old_logprobs, sampler_logprobs
from assay.algorithms.replay import with_replays
from assay.algorithms.shared_settings import with_defaults
from assay.maths.losses import cispo_loss, ratio
from assay.policy.forward import ModelOutput
from assay.types import Batch

COMMON = with_defaults("ScaleRL's clip and scale.", scale="batch", clip_low=1.0, clip_high=4.0)
ANCHORS = {"old": old_logprobs, "sampler": sampler_logprobs}


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """ScaleRL's (arXiv:2510.13786): weights from 0 to 5, advantages over the batch's deviation."""

    anchor: Literal["old", "sampler"] = "old"
    """What the ratio is to: the policy before the first gradient step on the batch (`old`), or the
    probabilities with which the engine sampled (`sampler`), in place of importance sampling."""


@algorithm(Settings)
def cispo(settings: Settings) -> Algorithm:
    """Clipped importance-sampling weights (MiniMax-M1, arXiv:2506.13585)."""
    built = build(settings, _surrogate, anchor=ANCHORS[settings.anchor])
    to_sampler = settings.anchor == "sampler"
    return with_replays(built, partial(_weight, settings)) if to_sampler else built


def _surrogate(
    settings: Settings, ratios: Tensor, logprobs: Tensor, advantages: Tensor
) -> tuple[Tensor, Numbers]:
    low, high = settings.clip_low, settings.clip_high
    outside = (ratios < 1 - low) | (ratios > 1 + high)
    return cispo_loss(ratios, logprobs, advantages, low, high), {"clipped": outside.float()}


def _weight(settings: Settings, output: ModelOutput, batch: Batch) -> Tensor:
    """[B, T] the clipped ratio to the sampler."""
    ratios = ratio(output.logprobs.detach(), batch.logprobs, batch.mask, settings.ratio)
    return ratios.clamp(1 - settings.clip_low, 1 + settings.clip_high)
