"""DPO: learns which of two completions of a task is the better, from its own rollouts or from a
file of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from pydantic import PositiveFloat, PositiveInt

from assay.algorithms.base import Algorithm, AlgorithmSettings, Numbers, algorithm
from assay.maths.losses import preference
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample


class Settings(AlgorithmSettings):
    """The paper's."""

    beta: PositiveFloat = 0.1
    """How dear it is to differ from the policy as it was at the start of the stage."""
    pairs: str = ""
    """A file of JSON lines: `chosen`, `rejected`, and `task_id` of a training task or `prompt`.
    Without one, each group of rollouts gives a pair: its shortest passing against its longest
    failing completion."""
    epochs: PositiveInt = 1
    """Gradient steps on each batch."""


@algorithm(Settings)
def dpo(settings: Settings) -> Algorithm:
    """Direct preference optimisation (arXiv:2305.18290); pairs from rollouts: shortest passing,
    longest failing.
    """
    return Algorithm(
        loss=partial(_loss, settings.beta),
        learns_from="pairs" if settings.pairs else "rollouts",
        compute_advantages=paired,
        mean="completions",
        reference=True,
        whole_groups=True,
        epochs=settings.epochs,
        pairs=settings.pairs,
    )


def paired(samples: Sequence[Sample]) -> list[Sample]:
    """Of each group the shortest that passed and the longest that failed, with advantages 1 and -1;
    no other.
    """
    found: list[Sample] = []
    for group in dict.fromkeys(sample.group for sample in samples):
        members = [sample for sample in samples if sample.group == group]
        passed = [sample for sample in members if sample.passed]
        failed = [sample for sample in members if not sample.passed]
        if passed and failed:
            found += [
                _signed(min(passed, key=_length), 1.0),
                _signed(max(failed, key=_length), -1.0),
            ]
    return found


def _loss(beta: float, output: ModelOutput, batch: Batch) -> tuple[torch.Tensor, Numbers]:
    """The pair's loss on all tokens of both: their mean over completions is the mean over pairs."""
    assert batch.reference_logprobs is not None
    ratios = (output.logprobs - batch.reference_logprobs) * batch.advantages
    own = ratios.masked_fill(~batch.mask, 0.0).sum(-1)
    margins = torch.zeros_like(own).index_add(0, batch.groups, own)[batch.groups].unsqueeze(-1)
    margins = margins.expand_as(batch.advantages)
    return preference(margins, beta), {
        "margin": margins.detach(),
        "accuracy": (margins.detach() > 0).float(),
    }


def _signed(sample: Sample, sign: float) -> Sample:
    return replace(sample, advantages=tuple(sign if trained else 0.0 for trained in sample.mask))


def _length(sample: Sample) -> int:
    return sum(sample.mask)
