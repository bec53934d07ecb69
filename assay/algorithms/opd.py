"""OPD: on-policy distillation. A teacher grades every token that the policy itself sampled.

    full:     L_t = sum_v p(v) (log p(v) - log t(v))                   over the whole vocabulary
    sampled:  L_t = -sg(min(p / p_engine, 2)) A_t log p(y_t),  A_t = sg(log t(y_t) - log p(y_t))

Both have the gradient of KL(p || t) at the states that the policy visits: `full` exactly, `sampled`
as an estimate from the one token that was sampled. Neither is cut to the likeliest tokens, which
would ignore what the teacher never says. No reward is learned from; it is still measured.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import PositiveInt
from torch import Tensor

from assay.algorithms.base import Algorithm, AlgorithmSettings, Numbers, algorithm, with_advantage
from assay.errors import SettingsError
from assay.maths.losses import cispo_loss, ratio
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample


class Settings(AlgorithmSettings):
    """The whole vocabulary, and one gradient step a batch."""

    teacher: str = ""
    """The model to learn from, by a name as `policy.model` takes it. It must have the policy's
    tokenizer, and is in memory beside it."""
    kl: Literal["full", "sampled"] = "full"
    """The KL divergence to the teacher over the `full` vocabulary, or estimated from the `sampled`
    token, which then has an advantage."""
    epochs: PositiveInt = 1
    """Passes over each batch."""
    minibatches: PositiveInt = 1
    """Gradient steps in one pass, each on whole groups."""


@algorithm(Settings)
def opd(settings: Settings) -> Algorithm:
    """On-policy distillation from a teacher (arXiv:2306.13649, arXiv:2306.08543)."""
    if not settings.teacher:
        raise SettingsError("algorithm.teacher is missing; name the model that opd learns from")
    return Algorithm(
        loss=LOSSES[settings.kl],
        learns_from="rollouts",
        compute_advantages=every_sample,
        teacher=settings.teacher,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
    )


def every_sample(samples: Sequence[Sample]) -> list[Sample]:
    """All samples, whatever their rewards."""
    return [with_advantage(sample, 1.0) for sample in samples]


def full_loss(output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The KL divergence to the teacher itself, [B, T]."""
    assert output.teacher_kl is not None
    return output.teacher_kl, {"teacher_kl": output.teacher_kl.detach()}


def sampled_loss(output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """REINFORCE on the sampled token's log-ratio to the teacher, [B, T]."""
    assert output.teacher_kl is not None
    assert output.teacher_logprobs is not None
    advantages = output.teacher_logprobs - output.logprobs.detach()
    ratios = ratio(output.logprobs, batch.logprobs, batch.mask)
    loss = cispo_loss(ratios, output.logprobs, advantages, low=1.0, high=1.0)
    return loss, {"teacher_kl": output.teacher_kl.detach()}


LOSSES: dict[str, Callable[[ModelOutput, Batch], tuple[Tensor, Numbers]]] = {
    "full": full_loss,
    "sampled": sampled_loss,
}
