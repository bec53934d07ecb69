"""KTO: each completion is good or bad by itself, measured by how far the policy has moved from the
reference altogether.

    L = w (1 - sigmoid(beta s (log p/p_ref(y) - z)))     s = 1 and w = desirable_weight where y
        passed, else s = -1 and w = undesirable_weight
    z = max(0, mean over the step of log p/p_ref(y)),  an estimate of KL(p || p_ref), constant

From rollouts, y is the policy's own, so the mean of its log-ratios is unbiased for the KL
divergence. From a file it is not. There z is, as in the paper, the mean over the same completions
behind other prompts. No groups are needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

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
from assay.maths.arrays import to_array, to_tensor
from assay.maths.losses import kto_loss
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample


class Settings(AlgorithmSettings):
    """The paper's."""

    beta: PositiveFloat = 0.1
    """KL penalty strength (beta). The reference is the policy at the start of the stage."""
    labels: str = ""
    """A file of JSON lines: `completion`, `label` (true if it is good), and `task_id` of a training
    task or `prompt`, as texts or messages. Default: rollouts, which are good if they pass."""
    desirable_weight: PositiveFloat = 1.0
    """Weight of completions that passed. With few of them, more keeps the balance: as many times as
    there are others."""
    undesirable_weight: PositiveFloat = 1.0
    """Weight of completions that did not."""
    epochs: PositiveInt = 1
    """Gradient steps on each batch."""


@algorithm(Settings)
def kto(settings: Settings) -> Algorithm:
    """Kahneman-Tversky optimisation (arXiv:2402.01306), from rollouts or labelled rows."""
    return Algorithm(
        loss=partial(_loss, settings),
        learns_from="labels" if settings.labels else "rollouts",
        compute_advantages=labelled if settings.labels else judged,
        loss_mean="completions",
        needs_old_logprobs=True,
        needs_reference=True,
        needs_logprobs_first=True,
        epochs=settings.epochs,
        file=settings.labels,
    )


def judged(samples: Sequence[Sample]) -> list[Sample]:
    """Rollouts with advantages of 1 or -1, and z of their own log-ratios."""
    return _compared(samples, samples)


def labelled(samples: Sequence[Sample]) -> list[Sample]:
    """The same of a file's rows. Each is a group of its completion and that behind another prompt,
    which counts in z alone.
    """
    rows = by_group(samples)
    return _compared([row[0] for row in rows], [row[1] for row in rows])


def _compared(samples: Sequence[Sample], others: Sequence[Sample]) -> list[Sample]:
    """The samples with advantages. Their share of z, of `others`, is added to the log-probabilities
    of the reference, so that a completion's log-ratio is less by z.
    """
    z = max(0.0, fmean(map(_log_ratio, others))) if others else 0.0
    return [
        replace(
            with_advantage(sample, 1.0 if sample.passed else -1.0),
            reference_logprobs=to_array(
                to_tensor(sample.reference_logprobs) + z / max(1, sample.trained_tokens)
            ),
        )
        for sample in samples
    ]


def _log_ratio(sample: Sample) -> float:
    """Log p/p_ref of the completion, before the first gradient step."""
    difference = to_tensor(sample.old_logprobs) - to_tensor(sample.reference_logprobs)
    return float(difference[to_tensor(sample.mask)].sum())


def _loss(settings: Settings, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The completion's loss [B, T], on each of its tokens."""
    assert batch.reference_logprobs is not None
    difference = (output.logprobs - batch.reference_logprobs).masked_fill(~batch.mask, 0.0)
    margin = difference.sum(-1, keepdim=True).expand_as(difference)
    weights = settings.desirable_weight, settings.undesirable_weight
    signed = margin.detach() * batch.advantages
    numbers = {"margin": signed, "accuracy": (signed > 0).float()}
    return kto_loss(margin, batch.advantages, settings.beta, *weights), numbers
