"""Dr. GRPO: GRPO without its two biases, towards very easy or hard tasks and long wrong answers.

    A_i = R_i - mean_G R          (no division by the standard deviation)

The loss of a completion is summed over its tokens and divided by a constant, `rollout.max_tokens`.
"""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "The paper's: no division by a standard deviation or by a completion's own length.",
    clip_high=0.2,
    loss_mean="constant",
)


@algorithm(Settings)
def dr_grpo(settings: PolicyGradientSettings) -> Algorithm:
    """GRPO done right (arXiv:2503.20783): no division by the std, losses over a constant length."""
    return build(settings, clipped_loss)
