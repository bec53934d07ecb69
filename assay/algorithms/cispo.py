"""CISPO: the ratio is truncated as a weight and no token is clipped away, so rare and decisive ones
keep teaching.
"""

from __future__ import annotations

from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.options import PolicyGradientSettings, refuse, with_defaults
from assay.algorithms.policy_gradient import build
from assay.maths.losses import truncated_policy_gradient

Settings = with_defaults(
    "ScaleRL's (arXiv:2510.13786): weights up to 5, none too small, deviations of the whole batch.",
    scale="batch",
    clip_low=1.0,
    clip_high=4.0,
)


@algorithm(Settings)
def cispo(settings: PolicyGradientSettings) -> Algorithm:
    """Clipped importance-sampling weights (MiniMax-M1, arXiv:2506.13585)."""
    refuse(settings, "cispo clips weights alone, on both sides", "dual_clip")

    def surrogate(ratios: Tensor, logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Numbers]:
        low, high = settings.clip_low, settings.clip_high
        outside = (ratios < 1 - low) | (ratios > 1 + high)
        return truncated_policy_gradient(ratios, logprobs, advantages, low, high), {
            "clipped": outside.float()
        }

    return build(settings, surrogate)
