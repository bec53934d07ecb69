"""SAPO: a smooth gate on the ratio in place of a clip, so no token loses all of its gradient.

L_t = -(4 / tau) sigmoid(tau (r_t - 1)) A,   r_t = p(y_t) / p_old(y_t)

tau is larger where A < 0: those gradients raise all other tokens, and are held back sooner.
"""

from pydantic import PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.policy_gradient import build
from assay.algorithms.shared_settings import refuse, with_defaults
from assay.maths.losses import sapo_loss

COMMON = with_defaults("GRPO's advantages.", scale="group", loss_mean="completions")


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """The paper's."""

    tau_positive: PositiveFloat = 1.0
    """Sharpness of the gate where the advantage is positive."""
    tau_negative: PositiveFloat = 1.05
    """Sharpness of the gate where it is negative."""


@algorithm(Settings)
def sapo(settings: Settings) -> Algorithm:
    """Soft adaptive policy optimisation (arXiv:2511.20347)."""
    refuse(settings, "sapo has a gate in place of the clip", "clip_low", "clip_high")
    return build(settings, gated_loss)


def gated_loss(
    settings: Settings, ratios: Tensor, logprobs: Tensor, advantages: Tensor
) -> tuple[Tensor, Numbers]:
    """The gate of each sign's sharpness, times A."""
    return sapo_loss(ratios, advantages, settings.tau_positive, settings.tau_negative), {}
