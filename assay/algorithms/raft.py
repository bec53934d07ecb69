"""RAFT: supervised fine-tuning on the policy's own completions that passed, sampled anew each step.

L_t = -log p(y_t)          for completions y that passed every check; others are left out

Nothing is pushed down, so nothing can diverge; and nothing is learned from failures.
"""

from collections.abc import Sequence

from pydantic import PositiveInt
from torch import Tensor

from assay.algorithms.base import Algorithm, AlgorithmSettings, Numbers, algorithm, with_advantage
from assay.maths.losses import cross_entropy
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample


class Settings(AlgorithmSettings):
    """As the field runs it: every completion that passed, the mean over all their tokens."""

    epochs: PositiveInt = 1
    """Passes over each batch."""


@algorithm(Settings)
def raft(settings: Settings) -> Algorithm:
    """Reward-ranked fine-tuning (arXiv:2304.06767), on all that passed (arXiv:2504.11343)."""
    return Algorithm(
        loss=_loss, learns_from="rollouts", compute_advantages=passed, epochs=settings.epochs
    )


def passed(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that passed, each with an advantage of 1."""
    return [with_advantage(sample, 1.0) for sample in samples if sample.passed]


def _loss(output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    return cross_entropy(output.logprobs), {}
