"""PPO in two forms: with a critic and GAE, or with the batch's mean as baseline and no critic."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.reward_shaping import kl_cost
from assay.algorithms.shared_settings import refuse, with_defaults
from assay.errors import SettingsError
from assay.maths.advantages import gae, whiten
from assay.maths.arrays import to_array, to_tensor
from assay.maths.losses import clipped_value_loss
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample

COMMON = with_defaults(
    "The clip of the paper.", baseline="batch", scale="batch", clip_high=0.2, epochs=4
)


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """The clip of the paper; gamma and lambda as usual with one reward at the end."""

    critic: bool = True
    """Use a value head on the policy (a critic) as the baseline, instead of `baseline`."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per token, with a critic."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of generalised advantage estimation (GAE): 1 uses rewards alone, less relies more on
    the critic."""
    value_loss: NonNegativeFloat = 0.5
    """Weight of the critic's squared error in the loss."""
    value_clip: PositiveFloat = 0.2
    """Farthest move of a value from its value before the batch's first step; beyond it has no
    gradient."""


@algorithm(Settings)
def ppo(settings: Settings) -> Algorithm:
    """Proximal policy optimisation (arXiv:1707.06347), with a critic and GAE or without.

    GAE: arXiv:1506.02438.
    """
    if not settings.critic:
        refuse(settings, "there is no critic", "gamma", "gae_lambda", "value_loss", "value_clip")
        return build(settings, clipped_loss)
    refuse(settings, "the critic is the baseline", "baseline")
    if settings.scale == "group":
        raise SettingsError(
            "algorithm.scale: with a critic, advantages are per token; use 'batch' or 'none'"
        )
    return build(settings, clipped_loss, token_advantages, value_term, needs_critic=True)


def token_advantages(settings: Settings, samples: Sequence[Sample]) -> list[Sample]:
    """Samples with one advantage per token by GAE, and the returns A + V that the critic learns.

    The reward is paid at the last token. Advantages are whitened over the step unless `scale` is
    "none".
    """
    masks = [to_tensor(sample.mask) for sample in samples]
    values = [to_tensor(sample.values)[mask] for sample, mask in zip(samples, masks, strict=True)]
    raw = []
    for sample, mask, value in zip(samples, masks, values, strict=True):
        rewards = -kl_cost(sample, settings)[mask]
        rewards[-1:] += sample.reward
        raw.append(gae(rewards, value, settings.gamma, settings.gae_lambda))
    scaled: Sequence[Tensor] = raw
    if settings.scale != "none" and raw:
        whitened = whiten(torch.cat(raw))
        scaled = torch.split(whitened, [len(values) for values in raw])
    return [
        replace(sample, advantages=_unmask(mask, a), returns=_unmask(mask, plain + value))
        for sample, mask, a, plain, value in zip(samples, masks, scaled, raw, values, strict=True)
    ]


def value_term(settings: Settings, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The critic's clipped squared error as a term of the loss [B, T]."""
    assert output.values is not None
    assert batch.values is not None
    assert batch.returns is not None
    error = clipped_value_loss(output.values, batch.values, batch.returns, settings.value_clip)
    numbers = {"value_error": error.detach(), "value": output.values.detach()}
    return settings.value_loss * error, numbers


def _unmask(mask: Tensor, values: Tensor) -> Sequence[float]:
    """[T] the values at the places of the mask, 0 elsewhere."""
    return to_array(torch.zeros(len(mask)).masked_scatter(mask, values))
