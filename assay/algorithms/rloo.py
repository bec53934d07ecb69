"""RLOO: a completion is compared with the other completions of its group, and is one action.

A_i = R_i - mean of the others' R,   r = p(y) / p_old(y) of the whole completion y

Importance sampling weights are of tokens: in bfloat16, their product over a completion is noise.
"""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "The paper's. The ratio matters only with several gradient steps on a batch.",
    baseline="leave_one_out",
    ratio="product",
    clip_high=0.2,
    loss_mean="completions",
)


@algorithm(Settings)
def rloo(settings: PolicyGradientSettings) -> Algorithm:
    """REINFORCE leave-one-out (arXiv:2402.14740)."""
    return build(settings, clipped_loss)
