"""GSPO: the ratio, its clip and the reward are all of whole completions."""

from __future__ import annotations

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.options import PolicyGradientSettings, with_defaults
from assay.algorithms.policy_gradient import build, clipping

Settings = with_defaults(
    "The paper's: a mean over hundreds of tokens varies little, so the clip is a thousand times"
    " narrower.",
    scale="group",
    ratio="mean",
    clip_low=0.0003,
    clip_high=0.0004,
    loss_mean="completions",
)


@algorithm(Settings)
def gspo(settings: PolicyGradientSettings) -> Algorithm:
    """Group sequence policy optimisation (arXiv:2507.18071)."""
    return build(settings, clipping(settings))
