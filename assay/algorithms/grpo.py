"""GRPO: the group of completions of one task is its own baseline.

    A_i = (R_i - mean_G R) / std_G R          for completion i of the group G
    L_t = -min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i),   r_t = p(y_t) / p_old(y_t)

`policy_gradient.py` puts the two together. `maths/losses.py` has the loss and the ratio,
`maths/advantages.py` the advantage. docs/grpo.md follows a completion from prompt to gradient.
"""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "As the field runs it now: no KL penalty, clip-higher, the mean over all tokens of the step.",
    scale="group",
)


@algorithm(Settings)
def grpo(settings: PolicyGradientSettings) -> Algorithm:
    """Group relative policy optimisation (arXiv:2402.03300), with DAPO's clip and token mean."""
    return build(settings, clipped_loss)
