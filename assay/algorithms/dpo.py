"""DPO: learn which of two completions of a task is better, from rollouts or from a file of pairs.

L = -log sigmoid(beta (log p/p_ref (chosen) - log p/p_ref (rejected)))
"""

from functools import partial

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from assay.algorithms.base import Algorithm, AlgorithmSettings, Numbers, algorithm
from assay.algorithms.pairs import make_pairs, margins
from assay.maths.losses import dpo_loss
from assay.policy.forward import ModelOutput
from assay.types import Batch


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


def _loss(beta: float, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The pair's loss [B, T], on every token of both completions."""
    assert batch.reference_logprobs is not None
    ratios = (output.logprobs - batch.reference_logprobs) * batch.advantages
    of_pair = margins(ratios.masked_fill(~batch.mask, 0.0).sum(-1), batch.groups)
    margin = of_pair.expand_as(batch.advantages)
    return dpo_loss(margin, beta), {
        "margin": margin.detach(),
        "accuracy": (margin.detach() > 0).float(),
    }
