"""Pairs of a better and a worse completion of one task, for losses that compare the two."""

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from assay.algorithms.base import Algorithm, AlgorithmSettings, Loss, by_group, with_advantage
from assay.types import Sample


class PairSettings(AlgorithmSettings):
    """Where pairs come from, and how often each is learned."""

    pairs: str = ""
    """A file of JSON lines: `chosen`, `rejected`, and `task_id` of a training task or `prompt`,
    as texts or messages. Default: of each group of rollouts the shortest passing and the longest
    failing completion."""
    epochs: PositiveInt = 1
    """Gradient steps on each batch."""


def build(settings: PairSettings, loss: Loss, *, needs_reference: bool = False) -> Algorithm:
    """The algorithm with a loss on pairs, from rollouts or from a file."""
    return Algorithm(
        loss=loss,
        learns_from="pairs" if settings.pairs else "rollouts",
        compute_advantages=make_pairs,
        loss_mean="completions",
        needs_reference=needs_reference,
        whole_groups=True,
        epochs=settings.epochs,
        file=settings.pairs,
    )


def make_pairs(samples: Sequence[Sample]) -> list[Sample]:
    """The shortest passing and the longest failing sample of each group, with advantages 1 and -1.

    Groups without both are left out.
    """
    pairs: list[Sample] = []
    for group in by_group(samples):
        passed = [sample for sample in group if sample.passed]
        failed = [sample for sample in group if not sample.passed]
        if passed and failed:
            pairs += [
                with_advantage(min(passed, key=_length), 1.0),
                with_advantage(max(failed, key=_length), -1.0),
            ]
    return pairs


def margins(signed: Tensor, groups: Tensor) -> Tensor:
    """The sum of `signed` over each one's pair: chosen minus rejected. Both [B] -> [B, 1]."""
    sums = torch.zeros_like(signed).index_add(0, groups, signed)
    return sums[groups].unsqueeze(-1)


def _length(sample: Sample) -> int:
    return sample.trained_tokens
