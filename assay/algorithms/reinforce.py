"""REINFORCE: the score function weighted by the reward, less a baseline."""

from __future__ import annotations

from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.options import PolicyGradientSettings, refuse, with_defaults
from assay.algorithms.policy_gradient import build
from assay.errors import SettingsError
from assay.maths.losses import policy_gradient


@algorithm(
    with_defaults(
        "No ratio and no clip: made for one gradient step on each batch.", baseline="batch"
    )
)
def reinforce(settings: PolicyGradientSettings) -> Algorithm:
    """REINFORCE (Williams 1992) with the batch's mean as baseline."""
    refuse(settings, "reinforce has no ratio", "clip_low", "clip_high", "dual_clip", "ratio")
    if settings.epochs * settings.minibatches > 1:
        raise SettingsError(
            "reinforce has no ratio to a policy of before: algorithm.epochs and minibatches must"
            " be 1"
        )

    def surrogate(ratios: Tensor, logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Numbers]:
        return policy_gradient(logprobs, advantages), {}

    return build(settings, surrogate)
