"""Replayed rollouts under an algorithm: their advantages stay, their weights are truncated.

    L_t = min(w_t, 2) / w_t  l_t,   w_t = p(y_t) / p_engine(y_t)

l_t is the algorithm's own loss of the token and w_t the weight that its gradient has, so that the
weight of a replayed token is min(w_t, 2). p_engine is the policy that sampled the rollout, steps
ago. Fresh tokens keep the algorithm's loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from assay.algorithms.base import Algorithm, ComputeAdvantages, Loss, Numbers
from assay.maths.losses import truncation
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample

MOST = 2.0
"""Largest weight of a replayed token, as `importance_sampling_max` is by default."""
Weight = Callable[[ModelOutput, Batch], Tensor]
"""Gives the importance weights [B, T] to the sampler, without gradient, that the loss holds."""


def with_replays(algorithm: Algorithm, weight: Weight) -> Algorithm:
    """The algorithm, and it learns from replayed samples too. Its loss must hold `weight`."""
    return replace(
        algorithm,
        loss=partial(_loss, algorithm.loss, weight),
        compute_advantages=partial(_advantages, algorithm.compute_advantages),
        learns_replays=True,
    )


def _advantages(compute: ComputeAdvantages, samples: Sequence[Sample]) -> list[Sample]:
    """Fresh samples are compared with fresh ones alone; replayed ones keep what they have."""
    fresh = compute([sample for sample in samples if not sample.replayed])
    return [*fresh, *(sample for sample in samples if sample.replayed)]


def _loss(base: Loss, weight: Weight, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    loss, numbers = base(output, batch)
    if batch.replayed is None:
        return loss, numbers
    weights = weight(output, batch)
    truncated = loss * truncation(weights, MOST)
    numbers = {**numbers, "replay/weight": weights.clamp(max=MOST)}
    return truncated.where(batch.replayed, loss), numbers
