"""ECHO: GRPO that also learns to predict what the environment replies to the policy's own actions.

    L = L_GRPO + echo_weight mean(-log p(o_t))          over the observed tokens o_t of the step

The observed tokens are in the same forward pass, so this costs no rollout and hardly any time. A
failed rollout teaches too. The mean over observed tokens has nothing to do with that over sampled
ones, however many of each there are.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pydantic import PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, ComputeAdvantages, Loss, Numbers, algorithm
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import with_defaults
from assay.maths.losses import cross_entropy
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample

COMMON = with_defaults("GRPO's.", scale="group")


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """GRPO's, and the weight of the cross-entropy."""

    echo_weight: PositiveFloat = 0.1
    """Weight of the mean cross-entropy over what the environment replied."""


@algorithm(Settings)
def echo(settings: Settings) -> Algorithm:
    """Environment cross-entropy hybrid objective (arXiv:2605.24517) over GRPO."""
    grpo = build(settings, clipped_loss)
    return replace(
        grpo,
        loss=partial(_loss, grpo.loss),
        compute_advantages=partial(_weigh_observed, settings, grpo.compute_advantages),
        has_no_gradient=lambda sample: grpo.has_no_gradient(sample) and not sample.observed,
    )


def _loss(sampled: Loss, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The loss of `sampled` tokens, and the cross-entropy of observed ones, [B, T]."""
    losses, numbers = sampled(output, batch)
    if batch.observed is None:
        return losses, numbers
    surprise = cross_entropy(output.logprobs)
    of_row = surprise.detach().masked_fill(~batch.observed, 0.0).sum(-1, keepdim=True)
    mean = of_row / batch.observed.sum(-1, keepdim=True).clamp(min=1)
    return surprise.where(batch.observed, losses), {**numbers, "echo": mean.expand_as(losses)}


def _weigh_observed(
    settings: Settings, compute: ComputeAdvantages, samples: Sequence[Sample]
) -> list[Sample]:
    """The samples with advantages, and the weight of each observed token in its minibatch."""
    estimated = compute(samples)
    total = sum(bytes(sample.observed).count(1) for sample in estimated)
    weight = settings.echo_weight * settings.minibatches / max(1, total)
    return [
        replace(sample, observed_weight=weight if sample.observed else 0.0) for sample in estimated
    ]
