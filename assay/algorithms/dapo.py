"""DAPO: GRPO with a higher clip, a token mean, groups sampled until they differ, and a price for
running long.
"""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import build, clipping

Settings = with_defaults(
    "The paper's: its buffer of 4,096 tokens is a fifth of a completion's limit, its price half the"
    " rewards' range.",
    scale="group",
    zero_variance_groups="resample",
    overlong_share=0.2,
    overlong_penalty=0.5,
)


@algorithm(Settings)
def dapo(settings: PolicyGradientSettings) -> Algorithm:
    """Decoupled clip and dynamic sampling policy optimisation (arXiv:2503.14476)."""
    return build(settings, clipping(settings))
