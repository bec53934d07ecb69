"""Options around advantages: shape rewards, put the KL penalty in the reward, drop groups of zero
variance, clip advantages.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.algorithms.base import rollout_totals, rollouts_of
from assay.algorithms.shared_settings import PolicyGradientSettings
from assay.maths.arrays import to_array, to_tensor
from assay.maths.kl import KL_ESTIMATORS
from assay.maths.rewards import have_zero_variance, overlong_punishment
from assay.types import Sample


def drop_zero_variance(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of groups whose rewards differ. Parts of one rollout count once."""
    rewards: dict[str, dict[int, float]] = {}
    for sample, rollout in zip(samples, rollouts_of(samples), strict=True):
        rewards.setdefault(sample.group, {})[rollout] = sample.reward
    equal = {name for name, of_group in rewards.items() if have_zero_variance(of_group.values())}
    return [sample for sample in samples if sample.group not in equal]


def shape_rewards(samples: Sequence[Sample], settings: PolicyGradientSettings) -> list[Sample]:
    """The samples with rewards less the soft overlong punishment of whole rollouts."""
    share, penalty = settings.overlong_share, settings.overlong_penalty
    lengths = rollout_totals(samples, (sample.trained_tokens for sample in samples))
    return [
        replace(
            sample,
            reward=sample.reward + penalty * overlong_punishment(length, sample.limit, share),
        )
        if share and sample.limit
        else sample
        for sample, length in zip(samples, lengths, strict=True)
    ]


def kl_cost(sample: Sample, settings: PolicyGradientSettings) -> Tensor:
    """[T] beta KL of each trained token to the reference; 0 unless `kl_in` is "reward"."""
    if not settings.kl or settings.kl_in == "loss":
        return torch.zeros(len(sample.mask))
    logprobs = to_tensor(sample.old_logprobs or sample.logprobs)
    kl = KL_ESTIMATORS[settings.kl_estimator](logprobs, to_tensor(sample.reference_logprobs))
    return (settings.kl * kl).masked_fill(~to_tensor(sample.mask), 0.0)


def clip_advantages(sample: Sample, settings: PolicyGradientSettings) -> Sample:
    """The sample with advantages in [-clip, clip]; masked out where `mask_truncated` says so."""
    clip = settings.advantage_clip
    if clip is not None:
        clipped = to_tensor(sample.advantages).clamp(-clip, clip)
        sample = replace(sample, advantages=to_array(clipped))
    if settings.mask_truncated and sample.truncated:
        length = len(sample.mask)
        sample = replace(sample, mask=(False,) * length, advantages=to_array(torch.zeros(length)))
    return sample
