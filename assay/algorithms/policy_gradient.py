"""The loss and the advantages that GRPO and all other policy-gradient algorithms share.

Of a completion y with reward R, for each of its tokens y_t:

    r_t = p(y_t) / p_old(y_t)         importance ratio             maths/losses.py
    w_t = p_old(y_t) / p_engine(y_t)  importance sampling weight   maths/losses.py
    A   = (R - baseline) / std        advantage                    maths/advantages.py
    L_t = w_t surrogate(r_t, A)       loss, plus beta KL - c H     maths/losses.py, maths/kl.py

p is the policy with its gradient, p_old the policy before the first gradient step on the batch,
p_engine the probability with which the engine sampled the token. The learner averages L_t. Some
algorithms take the ratio to p_engine instead (an `Anchor`); w_t is then 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from assay.algorithms.base import (
    Algorithm,
    Numbers,
    never,
    no_advantage,
    numbered,
    returned,
    rollout_totals,
    rollouts_of,
    with_advantage,
)
from assay.algorithms.reward_shaping import (
    clip_advantages,
    drop_zero_variance,
    kl_cost,
    shape_rewards,
)
from assay.algorithms.shared_settings import PolicyGradientSettings, refuse
from assay.maths.advantages import completion_advantages
from assay.maths.kl import KL_ESTIMATORS, k3
from assay.maths.losses import (
    clipped_surrogate,
    geometric_mask,
    importance_weights,
    is_clipped,
    ratio,
)
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample

RUNNING_DECAY = 0.9
"""Weight of past steps in the running mean of rewards."""
LOSS = (
    "(loss, numbers to log): a tensor [B, T] that has the gradient of ratios or log-probabilities,"
    " and a dict of tensors [B, T]"
)
Surrogate = Callable[[Any, Tensor, Tensor, Tensor], tuple[Tensor, Numbers]]
"""Maps settings and ratios, log-probabilities, advantages [B, T] to a loss [B, T] and numbers to
log."""
Term = Callable[[Any, ModelOutput, Batch], tuple[Tensor, Numbers]]
"""Maps settings, the model's output and the batch to a term of the loss [B, T] and numbers to
log."""
Estimator = Callable[[Any, Sequence[Sample]], list[Sample]]
"""Maps settings and samples with shaped rewards to samples with advantages (and returns)."""
Anchor = Callable[[ModelOutput, Batch], Tensor]
"""Gives the log-probabilities [B, T] to which the importance ratio is taken."""


def old_logprobs(output: ModelOutput, batch: Batch) -> Tensor:
    """[B, T] log p_old, without gradient. With one gradient step a batch, p_old is p itself."""
    return output.logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs


def sampler_logprobs(output: ModelOutput, batch: Batch) -> Tensor:
    """[B, T] log p_engine. A ratio to it corrects for the engine too, so w_t is 1."""
    return batch.logprobs


def build(
    settings: PolicyGradientSettings,
    surrogate: Surrogate,
    estimator: Estimator | None = None,
    *terms: Term,
    needs_critic: bool = False,
    anchor: Anchor = old_logprobs,
) -> Algorithm:
    """The algorithm with this surrogate, more `terms` of the loss, and the shared options.

    `estimator` computes the advantages. Without one each completion gets one advantage, as
    `baseline` and `scale` say. `needs_critic`: samples come to the estimator with `values`.
    `anchor` gives the denominator of the ratio. Raises SettingsError for a correction of the
    engine's probabilities beside a ratio to them.
    """
    if anchor is sampler_logprobs:
        corrections = [
            name for name in type(settings).model_fields if name.startswith("importance")
        ]
        refuse(settings, "the ratio to the sampler is the correction", *corrections)
    kl_in_loss = settings.kl > 0 and settings.kl_in == "loss"
    terms += (kl_penalty,) * kl_in_loss + (entropy_bonus,) * (settings.entropy_bonus > 0)
    running = torch.zeros(2, dtype=torch.float64) if settings.baseline == "running" else None
    surrogate = partial(returned, surrogate, _is_loss, LOSS)
    estimator = estimator and partial(returned, estimator, _is_samples, "a list of samples")
    policy_gradient = PolicyGradient(settings, surrogate, estimator, terms, anchor, running)
    return Algorithm(
        loss=policy_gradient.loss,
        learns_from="rollouts",
        compute_advantages=policy_gradient.compute_advantages,
        has_no_gradient=never if terms else no_advantage,
        loss_mean=settings.loss_mean,
        needs_old_logprobs=needs_critic or settings.epochs * settings.minibatches > 1,
        needs_reference=settings.kl > 0,
        needs_critic=needs_critic,
        needs_logprobs_first=needs_critic or (settings.kl > 0 and not kl_in_loss),
        entropy_gradient=settings.entropy_bonus > 0,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        max_resamples=settings.max_resamples if settings.zero_variance_groups == "resample" else 0,
        running_baseline=running,
    )


def _is_loss(result: object, arguments: Sequence[Any]) -> bool:
    """Whether it neither broadcasts nor lacks a gradient."""
    ratios: Tensor = arguments[1]
    match result:
        case (Tensor() as loss, Mapping() as numbers):
            tensors = [loss, *numbers.values()]
            same = all(
                isinstance(tensor, Tensor) and tensor.shape == ratios.shape for tensor in tensors
            )
            return same and loss.requires_grad == ratios.requires_grad
    return False


def _is_samples(result: object, arguments: object) -> bool:
    return isinstance(result, list) and all(isinstance(item, Sample) for item in result)


@dataclass(frozen=True)
class PolicyGradient:
    """A loss and advantages under the shared options."""

    settings: PolicyGradientSettings
    surrogate: Surrogate
    estimator: Estimator | None
    terms: Sequence[Term]
    anchor: Anchor
    running: Tensor | None
    """[2] float64, the mean reward of past steps and the number of steps; changed in place."""

    def loss(self, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
        """L_t = w_t surrogate(r_t, A) plus the other terms, [B, T]."""
        s, old, anchor = self.settings, old_logprobs(output, batch), self.anchor(output, batch)
        ratios = ratio(output.logprobs, anchor, batch.mask, s.ratio)
        bounds = (s.importance_sampling_min, s.importance_sampling_max)
        weights = importance_weights(
            anchor, batch.logprobs, batch.mask, s.importance_sampling, *bounds
        )
        spread = {"importance_weight_spread": (weights - 1).abs()}
        if s.geometric_mask:
            weights = weights * geometric_mask(old, batch.logprobs, batch.mask, *s.geometric_mask)
        loss, numbers = self.surrogate(s, ratios, output.logprobs, batch.advantages)
        loss = weights * loss
        mismatch = {"kl_engine": k3(old, batch.logprobs), "importance_weight": weights}
        numbers = {**numbers, "ratio_max": ratios.detach(), **mismatch, **spread}
        for term in self.terms:
            more, more_numbers = term(s, output, batch)
            loss, numbers = loss + more, {**numbers, **more_numbers}
        return loss, numbers

    def compute_advantages(self, samples: Sequence[Sample]) -> list[Sample]:
        """Drop groups of zero variance if asked, shape the rewards, then estimate advantages."""
        s = self.settings
        counts = s.zero_variance_groups == "count"
        used = samples if counts else drop_zero_variance(samples)
        shaped = shape_rewards(used, s)
        estimated = self.estimator(s, shaped) if self.estimator else self._of_completions(shaped)
        return [clip_advantages(sample, s) for sample in estimated]

    def _of_completions(self, samples: Sequence[Sample]) -> list[Sample]:
        """One advantage per completion, A = (R - beta KL - baseline) / std.

        Parts of one rollout are one completion, with the KL of them all.
        """
        if not samples:
            return []
        s, rollouts = self.settings, rollouts_of(samples)
        costs = rollout_totals(samples, (float(kl_cost(sample, s).sum()) for sample in samples))
        totals = {
            rollout: (sample.reward - cost, sample.group)
            for rollout, sample, cost in zip(rollouts, samples, costs, strict=True)
        }
        rewards, names = zip(*totals.values(), strict=True)
        advantages: list[float] = completion_advantages(
            torch.tensor(rewards), torch.tensor(numbered(names)),
            s.baseline, s.scale, self._past_mean(rewards),
        ).tolist()  # fmt: skip
        return [
            with_advantage(sample, advantages[rollout])
            for sample, rollout in zip(samples, rollouts, strict=True)
        ]

    def _past_mean(self, rewards: Sequence[float]) -> float:
        """The mean reward of past steps (in the first, of this step); then adds this step's."""
        if self.running is None:
            return 0.0
        mean = fmean(rewards)
        past = float(self.running[0]) if self.running[1] else mean
        self.running[0] = RUNNING_DECAY * past + (1 - RUNNING_DECAY) * mean
        self.running[1] += 1
        return past


def clipped_loss(
    settings: PolicyGradientSettings, ratios: Tensor, logprobs: Tensor, advantages: Tensor
) -> tuple[Tensor, Numbers]:
    """PPO's and GRPO's surrogate, -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)."""
    bounds = (settings.clip_low, settings.clip_high)
    numbers = {"clipped": is_clipped(ratios.detach(), advantages, *bounds)}
    return clipped_surrogate(ratios, advantages, *bounds), numbers


def kl_penalty(
    settings: PolicyGradientSettings, output: ModelOutput, batch: Batch
) -> tuple[Tensor, Numbers]:
    """Beta KL(p || reference) as a term of the loss [B, T].

    Weighted by the ratio of tokens, its gradient is that of the KL itself (DeepSeek-V3.2,
    arXiv:2512.02556).
    """
    assert batch.reference_logprobs is not None
    kl = KL_ESTIMATORS[settings.kl_estimator](output.logprobs, batch.reference_logprobs)
    ratios = ratio(output.logprobs, old_logprobs(output, batch), batch.mask)
    return settings.kl * ratios * kl, {"kl": kl.detach()}


def entropy_bonus(
    settings: PolicyGradientSettings, output: ModelOutput, batch: Batch
) -> tuple[Tensor, Numbers]:
    """-c H: the policy's entropy, in nats, is subtracted from the loss [B, T]."""
    return -settings.entropy_bonus * output.entropy, {}
