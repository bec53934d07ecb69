"""From the rewards of a step to the advantages of its tokens, under the shared options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from assay.algorithms.base import per_completion
from assay.algorithms.options import PolicyGradientSettings
from assay.maths.advantages import advantages, generalised, whitened
from assay.maths.divergences import ESTIMATORS
from assay.maths.rewards import mapped, overlong
from assay.types import Sample

Estimate = Callable[[Sequence[Sample]], list[Sample]]
"""Fills in advantages, and returns where there is a critic, of samples whose rewards are shaped
already."""


def credited(
    settings: PolicyGradientSettings, estimate: Estimate, samples: Sequence[Sample]
) -> list[Sample]:
    """Samples with advantages: rewards shaped, flat groups left out if so wished, advantages
    clipped and masked.
    """
    kept = (
        list(samples) if settings.zero_variance_groups == "count" else _without_flat_groups(samples)
    )
    estimated = estimate([replace(sample, reward=_shaped(sample, settings)) for sample in kept])
    return [_bounded(sample, settings) for sample in estimated]


def outcome(
    settings: PolicyGradientSettings, running_baseline: Tensor | None, samples: Sequence[Sample]
) -> list[Sample]:
    """One advantage per completion, from its reward less what it costs to differ from the
    reference.

    `running_baseline` [2] float64 holds the mean of past steps and their number.
    """
    totals = [
        replace(sample, reward=sample.reward - float(_costs(sample, settings).sum()))
        for sample in samples
    ]
    running = (
        0.0
        if running_baseline is None
        else _remembered(running_baseline, totals, settings.running_decay)
    )
    scheme = (settings.baseline, settings.scale, settings.min_std, running)
    return per_completion(lambda rewards, groups: advantages(rewards, groups, *scheme))(totals)


def per_token(
    settings: PolicyGradientSettings, gamma: float, decay: float, samples: Sequence[Sample]
) -> list[Sample]:
    """Generalised advantage estimation from the critic's values, whitened over the step unless
    `scale` is none.
    """
    masks = [torch.tensor(sample.mask) for sample in samples]
    values = [
        torch.tensor(sample.values)[mask] for sample, mask in zip(samples, masks, strict=True)
    ]
    found = []
    for sample, mask, expected in zip(samples, masks, values, strict=True):
        rewards = -_costs(sample, settings)[mask]
        rewards[-1] += sample.reward
        found.append(generalised(rewards, expected, gamma, decay))
    scaled = found
    if settings.scale != "none" and found:
        scaled = list(
            torch.split(whitened(torch.cat(found), settings.min_std), [len(one) for one in found])
        )
    return [
        replace(sample, advantages=_spread(mask, own), returns=_spread(mask, raw + expected))
        for sample, mask, own, raw, expected in zip(
            samples, masks, scaled, found, values, strict=True
        )
    ]


def _without_flat_groups(samples: Sequence[Sample]) -> list[Sample]:
    rewards: dict[str, set[float]] = {}
    for sample in samples:
        rewards.setdefault(sample.group, set()).add(sample.reward)
    return [sample for sample in samples if len(rewards[sample.group]) > 1]


def _shaped(sample: Sample, settings: PolicyGradientSettings) -> float:
    reward = sample.reward
    if settings.reward_from is not None:
        reward = mapped(reward, settings.reward_from, settings.reward_to)
    if settings.overlong_share and sample.limit:
        reward += settings.overlong_penalty * overlong(
            sum(sample.mask), sample.limit, settings.overlong_share
        )
    return reward


def _costs(sample: Sample, settings: PolicyGradientSettings) -> Tensor:
    """[T] what each token costs by being likelier than under the reference; 0 unless that is in the
    reward.
    """
    if not settings.kl or settings.kl_in == "loss":
        return torch.zeros(len(sample.mask))
    written = torch.tensor(sample.old_logprobs or sample.logprobs)
    divergence = ESTIMATORS[settings.kl_estimator](written, torch.tensor(sample.reference_logprobs))
    return (settings.kl * divergence).masked_fill(~torch.tensor(sample.mask), 0.0)


def _remembered(running_baseline: Tensor, samples: Sequence[Sample], decay: float) -> float:
    """The mean reward of past steps, this one's at first; then keeps this one's in mind."""
    mean = fmean(sample.reward for sample in samples) if samples else 0.0
    past = float(running_baseline[0]) if running_baseline[1] else mean
    if samples:
        running_baseline[0], running_baseline[1] = (
            decay * past + (1 - decay) * mean,
            running_baseline[1] + 1,
        )
    return past


def _bounded(sample: Sample, settings: PolicyGradientSettings) -> Sample:
    clip = settings.advantage_clip
    if clip is not None:
        sample = replace(
            sample, advantages=tuple(min(max(value, -clip), clip) for value in sample.advantages)
        )
    if settings.mask_truncated and sample.truncated:
        length = len(sample.mask)
        sample = replace(sample, mask=(False,) * length, advantages=(0.0,) * length)
    return sample


def _spread(mask: Tensor, values: Tensor) -> tuple[float, ...]:
    """[T] the values at the places of the mask, 0 elsewhere."""
    return tuple(torch.zeros(len(mask)).masked_scatter(mask, values).tolist())
