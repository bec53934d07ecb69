"""RLOO: each completion is compared with the mean of its group's others, and is one action as a
whole.
"""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import build, clipping

Settings = with_defaults(
    "The paper's; the ratio, of whole completions, matters only with several gradient steps on a"
    " batch.",
    baseline="leave_one_out",
    ratio="product",
    clip_high=0.2,
    loss_mean="completions",
)


@algorithm(Settings)
def rloo(settings: PolicyGradientSettings) -> Algorithm:
    """REINFORCE leave-one-out (arXiv:2402.14740)."""
    return build(settings, clipping(settings))
