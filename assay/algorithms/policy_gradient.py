"""The one place that applies the shared options: a surrogate and its settings become an
algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from assay.algorithms.advantage_estimation import Estimate, credited, outcome
from assay.algorithms.base import Algorithm, Numbers, engine_mismatch, never, no_advantage
from assay.algorithms.options import PolicyGradientSettings
from assay.maths.divergences import ESTIMATORS
from assay.maths.losses import clipped, clipped_surrogate
from assay.maths.ratios import Level, corrected, ratio
from assay.policy.forward import ModelOutput
from assay.types import Batch

Surrogate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Numbers]]
"""From ratios, log-probabilities and advantages, all [B, T], to a loss [B, T] and numbers to
log."""
Term = Callable[[ModelOutput, Batch, Tensor], tuple[Tensor, Numbers]]
"""From what the policy says, the batch and the ratios [B, T] to one term of the loss and numbers to
log."""


def clipping(settings: PolicyGradientSettings) -> Surrogate:
    """The clipped surrogate within the settings' bounds."""
    bounds = (settings.clip_low, settings.clip_high, settings.dual_clip)

    def surrogate(ratios: Tensor, logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Numbers]:
        stopped = clipped(ratios.detach(), advantages, *bounds)
        return clipped_surrogate(ratios, advantages, *bounds), {"clipped": stopped}

    return surrogate


def build(
    settings: PolicyGradientSettings,
    surrogate: Surrogate,
    estimate: Estimate | None = None,
    *terms: Term,
) -> Algorithm:
    """The algorithm that learns from `surrogate` (and more `terms`) under the shared options.

    `estimate` fills in advantages, and returns where there is a critic, from shaped rewards;
    without one each completion gets what `baseline` and `scale` say.
    """
    running_baseline = (
        torch.zeros(2, dtype=torch.float64) if settings.baseline == "running" else None
    )
    in_reward, in_loss = (
        settings.kl > 0 and settings.kl_in == where for where in ("reward", "loss")
    )
    every = (_policy_term(settings, surrogate), *terms)
    every += (partial(_divergence, settings),) if in_loss else ()
    every += (partial(_entropy, settings.entropy_bonus),) if settings.entropy_bonus else ()
    return Algorithm(
        loss=partial(_sum, settings.ratio, every),
        learns_from="rollouts",
        compute_advantages=partial(
            credited, settings, estimate or partial(outcome, settings, running_baseline)
        ),
        has_no_gradient=no_advantage if len(every) == 1 else never,
        mean=settings.loss_mean,
        reference=settings.kl > 0,
        critic=estimate is not None,
        needs_logprobs_first=estimate is not None or in_reward,
        entropy_gradient=settings.entropy_bonus > 0,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        max_resamples=settings.max_resamples if settings.zero_variance_groups == "resample" else 0,
        running_baseline=running_baseline,
    )


def _sum(
    level: Level, terms: Sequence[Term], output: ModelOutput, batch: Batch
) -> tuple[Tensor, Numbers]:
    ratios = ratio(output.logprobs, _old(output, batch), batch.mask, level)
    losses, numbers = zip(*(term(output, batch, ratios) for term in terms), strict=True)
    return torch.stack(losses).sum(0), {
        name: value for part in numbers for name, value in part.items()
    }


def _old(output: ModelOutput, batch: Batch) -> Tensor:
    """[B, T] of the policy before the first gradient step, which with a single one is the policy
    itself.
    """
    return output.logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs


def _policy_term(settings: PolicyGradientSettings, surrogate: Surrogate) -> Term:
    bounds = (
        settings.importance_sampling,
        settings.importance_sampling_min,
        settings.importance_sampling_max,
    )

    def term(output: ModelOutput, batch: Batch, ratios: Tensor) -> tuple[Tensor, Numbers]:
        loss, numbers = surrogate(ratios, output.logprobs, batch.advantages)
        weight = corrected(_old(output, batch), batch.logprobs, batch.mask, *bounds)
        numbers = {
            **numbers,
            "kl_engine": engine_mismatch(output.logprobs, batch),
            "importance_weight": weight,
        }
        return weight * loss, numbers

    return term


def _divergence(
    settings: PolicyGradientSettings, output: ModelOutput, batch: Batch, _: Tensor
) -> tuple[Tensor, Numbers]:
    """Weighted by the ratio of tokens its gradient is the divergence's own (DeepSeek-V3.2,
    arXiv:2512.02556).
    """
    assert batch.reference_logprobs is not None
    divergence = ESTIMATORS[settings.kl_estimator](output.logprobs, batch.reference_logprobs)
    weight = (
        ratio(output.logprobs, _old(output, batch), batch.mask)
        if settings.kl_importance_sampling
        else 1.0
    )
    return settings.kl * weight * divergence, {"kl": divergence.detach()}


def _entropy(bonus: float, output: ModelOutput, batch: Batch, _: Tensor) -> tuple[Tensor, Numbers]:
    return -bonus * output.entropy, {}
