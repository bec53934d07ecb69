"""DPO: learn which of two completions of a task is better, from rollouts or from a file of pairs.

L = -log sigmoid(beta (log p/p_ref (chosen) - log p/p_ref (rejected)))
"""

from functools import partial

from pydantic import PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.pairs import PairSettings, build, margins
from assay.maths.losses import dpo_loss
from assay.policy.forward import ModelOutput
from assay.types import Batch


class Settings(PairSettings):
    """The paper's."""

    beta: PositiveFloat = 0.1
    """KL penalty strength (beta). The reference is the policy at the start of the stage."""


@algorithm(Settings)
def dpo(settings: Settings) -> Algorithm:
    """Direct preference optimisation (arXiv:2305.18290), from rollouts or from a file of pairs."""
    return build(settings, partial(_loss, settings.beta), needs_reference=True)


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
