"""DAPO: GRPO with a higher clip, a token mean, groups sampled until they differ, and a price for running long."""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import bundle, clipping

Settings = with_defaults(
    "The paper's; the buffer is a fifth of 512 tokens, as its own is of 20,480.",
    scale="group",
    flat_groups="refill",
    overlong_buffer=100,
)


@algorithm(Settings)
def dapo(settings: PolicyGradientSettings) -> Algorithm:
    """Decoupled clip and dynamic sampling policy optimisation (arXiv:2503.14476)."""
    return bundle(settings, clipping(settings))
