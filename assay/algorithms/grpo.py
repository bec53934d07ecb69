"""GRPO: the group of completions of one task is its own baseline; a clipped ratio allows several
steps on a batch.
"""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import build, clipping

Settings = with_defaults(
    "The field's consensus: no divergence, asymmetric clip, tokens of the whole step weigh the"
    " same.",
    scale="group",
)


@algorithm(Settings)
def grpo(settings: PolicyGradientSettings) -> Algorithm:
    """Group relative policy optimisation (arXiv:2402.03300), token mean and clip-higher of DAPO
    (2503.14476).
    """
    return build(settings, clipping(settings))
