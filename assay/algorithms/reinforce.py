"""REINFORCE: -A log p(y_t), with A the reward minus a baseline."""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build
from assay.algorithms.shared_settings import PolicyGradientSettings, refuse, with_defaults
from assay.errors import SettingsError
from assay.maths.losses import reinforce_loss

Settings = with_defaults("No ratio and no clip: one gradient step per batch.", baseline="batch")


@algorithm(Settings)
def reinforce(settings: PolicyGradientSettings) -> Algorithm:
    """REINFORCE (Williams 1992) with the batch's mean as baseline."""
    refuse(settings, "reinforce has no ratio", "clip_low", "clip_high", "ratio")
    if settings.epochs * settings.minibatches > 1:
        raise SettingsError(
            "reinforce has no ratio to an older policy: set algorithm.epochs and"
            " algorithm.minibatches to 1"
        )
    return build(
        settings, lambda s, ratios, logprobs, advantages: (reinforce_loss(logprobs, advantages), {})
    )
