"""DAPO: GRPO with dynamic sampling, clip-higher, a token mean and soft overlong punishment."""

from assay.algorithms.base import Algorithm, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults

Settings = with_defaults(
    "The paper's: its buffer of 4,096 tokens is a fifth of the token limit, its punishment half the"
    " range of rewards.",
    scale="group",
    zero_variance_groups="resample",
    overlong_share=0.2,
    overlong_penalty=0.5,
)


@algorithm(Settings)
def dapo(settings: PolicyGradientSettings) -> Algorithm:
    """Decoupled clip and dynamic sampling policy optimisation (arXiv:2503.14476)."""
    return build(settings, clipped_loss)
