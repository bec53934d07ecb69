"""PPO in both forms: a critic's values as baseline of every token, or the batch's mean and no
critic.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from assay.algorithms.advantage_estimation import per_token
from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.options import refuse, with_defaults
from assay.algorithms.policy_gradient import build, clipping
from assay.errors import SettingsError
from assay.maths.losses import clipped_value
from assay.policy.forward import ModelOutput
from assay.types import Batch

COMMON = with_defaults(
    "The clip of the paper.", baseline="batch", scale="batch", clip_high=0.2, epochs=4
)


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """The clip of the paper; discount and decay of the field's practice with one reward at the
    end.
    """

    critic: bool = True
    """Whether a value head on the policy is the baseline; without it, `baseline` is."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per token, with a critic."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of generalised advantage estimation: 1 trusts the reward alone, less trusts the critic
    more."""
    value_loss: NonNegativeFloat = 0.5
    """Weight of the critic's squared error in the loss."""
    value_clip: PositiveFloat = 0.2
    """How far a value may move from what it was before the batch's first step, before it stops
    learning."""


@algorithm(Settings)
def ppo(settings: Settings) -> Algorithm:
    """Proximal policy optimisation (arXiv:1707.06347), with a critic and GAE (1506.02438) or
    without.
    """
    if not settings.critic:
        refuse(settings, "there is no critic", "gamma", "gae_lambda", "value_loss", "value_clip")
        return build(settings, clipping(settings))
    refuse(settings, "the critic is the baseline", "baseline", "running_decay")
    if settings.scale == "group":
        raise SettingsError(
            "algorithm.scale: with a critic, advantages are of tokens; take 'batch' or 'none'"
        )

    def value_term(output: ModelOutput, batch: Batch, ratios: Tensor) -> tuple[Tensor, Numbers]:
        assert output.values is not None
        assert batch.values is not None
        assert batch.returns is not None
        error = clipped_value(output.values, batch.values, batch.returns, settings.value_clip)
        return settings.value_loss * error, {
            "value_error": error.detach(),
            "value": output.values.detach(),
        }

    estimate = partial(per_token, settings, settings.gamma, settings.gae_lambda)
    return build(settings, clipping(settings), estimate, value_term)
