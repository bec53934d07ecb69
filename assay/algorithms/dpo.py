"""DPO: learn which of two completions of a task is better, from rollouts or from a file of pairs.

L = -log sigmoid(beta (log p/p_ref (chosen) - log p/p_ref (rejected)))
"""

from collections.abc import Sequence
from functools import partial

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from assay.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Numbers,
    algorithm,
    by_group,
    with_advantage,
)
from assay.maths.losses import dpo_loss
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample


class Settings(AlgorithmSettings):
    """The paper's."""

    beta: PositiveFloat = 0.1
    """KL penalty strength (beta). The reference is the policy at the start of the stage."""
    pairs: str = ""
    """A file of JSON lines: `chosen`, `rejected`, and `task_id` of a training task or `prompt`,
    as texts or messages. Default: of each group of rollouts the shortest passing and the longest
    failing completion."""
    epochs: PositiveInt = 1
    """Gradient steps on each batch."""


@algorithm(Settings)
def dpo(settings: Settings) -> Algorithm:
    """Direct preference optimisation (arXiv:2305.18290), from rollouts or from a file of pairs."""
    return Algorithm(
        loss=partial(_loss, settings.beta),
        learns_from="pairs" if settings.pairs else "rollouts",
        compute_advantages=make_pairs,
        loss_mean="completions",
        needs_reference=True,
        whole_groups=True,
        epochs=settings.epochs,
        pairs=settings.pairs,
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


def _loss(beta: float, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The pair's loss [B, T], on every token of both completions."""
    assert batch.reference_logprobs is not None
    ratios = (output.logprobs - batch.reference_logprobs) * batch.advantages
    sums = ratios.masked_fill(~batch.mask, 0.0).sum(-1)
    margins = torch.zeros_like(sums).index_add(0, batch.groups, sums)[batch.groups].unsqueeze(-1)
    margins = margins.expand_as(batch.advantages)
    return dpo_loss(margins, beta), {
        "margin": margins.detach(),
        "accuracy": (margins.detach() > 0).float(),
    }


def _length(sample: Sample) -> int:
    return sample.trained_tokens
