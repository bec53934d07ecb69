"""MaxRL: maximises the likelihood of a success, and not its chance, so rare successes count more.

    A_i = (R_i - mean_G R) / mean_G R          for completion i of the group G; 0 without a success

Of N completions the expected gradient is that of sum_k pass@k / k for k up to N - 1, a series whose
limit is log pass@1 (without the baseline, up to N). A task with a pass rate of q weighs about 1 / q
as much as in REINFORCE. Rewards must not be negative: a group whose mean is not above 0 teaches
nothing.
"""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "The paper's advantage, in GRPO's loss.",
    scale="mean",
)


@algorithm(Settings)
def max_rl(settings: PolicyGradientSettings) -> Algorithm:
    """Maximum likelihood reinforcement learning (arXiv:2602.02710)."""
    return build(settings, clipped_loss)
