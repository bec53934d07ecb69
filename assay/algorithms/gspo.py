"""GSPO: GRPO whose ratio and clip are of whole completions.

r = (p(y) / p_old(y))^(1 / |y|)          the geometric mean over the |y| tokens of y

Importance sampling weights are of tokens: in bfloat16, their product over a completion is noise.
"""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "The paper's: a mean over hundreds of tokens varies little, so the clip range is a thousand"
    " times narrower.",
    scale="group",
    ratio="mean",
    clip_low=0.0003,
    clip_high=0.0004,
    loss_mean="completions",
)


@algorithm(Settings)
def gspo(settings: PolicyGradientSettings) -> Algorithm:
    """Group sequence policy optimisation (arXiv:2507.18071)."""
    return build(settings, clipped_loss)
