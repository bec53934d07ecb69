"""CISPO: the clipped ratio is a weight without gradient, so no token loses its gradient.

L_t = -sg(clip(r_t, 1 - clip_low, 1 + clip_high)) A log p(y_t)
"""

from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.policy_gradient import build
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults
from assay.maths.losses import cispo_loss

Settings = with_defaults(
    "ScaleRL's (arXiv:2510.13786): weights from 0 to 5, advantages over the batch's deviation.",
    scale="batch",
    clip_low=1.0,
    clip_high=4.0,
)


@algorithm(Settings)
def cispo(settings: PolicyGradientSettings) -> Algorithm:
    """Clipped importance-sampling weights (MiniMax-M1, arXiv:2506.13585)."""
    return build(settings, _surrogate)


def _surrogate(
    settings: PolicyGradientSettings, ratios: Tensor, logprobs: Tensor, advantages: Tensor
) -> tuple[Tensor, Numbers]:
    low, high = settings.clip_low, settings.clip_high
    outside = (ratios < 1 - low) | (ratios > 1 + high)
    return cispo_loss(ratios, logprobs, advantages, low, high), {"clipped": outside.float()}
