"""Dr. GRPO: GRPO without its two biases, towards easy and hard tasks and towards long wrong
answers.
"""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import build, clipping

Settings = with_defaults(
    "The paper's: nothing is divided by a standard deviation or by a completion's own length.",
    clip_high=0.2,
    loss_mean="constant",
)


@algorithm(Settings)
def dr_grpo(settings: PolicyGradientSettings) -> Algorithm:
    """GRPO done right (arXiv:2503.20783): group-centred rewards as they are, losses over a constant
    length.
    """
    return build(settings, clipping(settings))
