"""ORPO: supervised fine-tuning on the better completion of a pair, and a penalty on the worse one.

    L = mean_t -log p(chosen_t) - beta log sigmoid(log odds(chosen) - log odds(rejected))
    odds = P / (1 - P),   P = (prod_t p(y_t))^(1 / |y|)          of a completion y of |y| tokens

It needs no reference, and no SFT before it.
"""

from functools import partial

from pydantic import PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.pairs import PairSettings, build, margins
from assay.maths.losses import cross_entropy, dpo_loss, log_odds
from assay.policy.forward import ModelOutput
from assay.types import Batch


class Settings(PairSettings):
    """The paper's."""

    beta: PositiveFloat = 0.1
    """Weight of the odds ratio beside the likelihood of the chosen completion."""


@algorithm(Settings)
def orpo(settings: Settings) -> Algorithm:
    """Odds ratio preference optimisation (arXiv:2403.07691), from rollouts or a file of pairs."""
    return build(settings, partial(_loss, settings.beta))


def _loss(beta: float, output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    """The loss [B, T]: the pair's on every token of both completions, and twice -log p of the
    chosen one's, which is half of the completions in the mean.
    """
    logprobs, is_chosen = output.logprobs, batch.advantages > 0
    means = logprobs.masked_fill(~batch.mask, 0.0).sum(-1) / batch.mask.sum(-1).clamp(min=1)
    sign = batch.advantages.masked_fill(~batch.mask, 0.0).sum(-1).sign()
    margin = margins(sign * log_odds(means), batch.groups).expand_as(logprobs)
    likelihood = cross_entropy(logprobs).masked_fill(~is_chosen, 0.0)
    numbers = {"margin": margin.detach(), "accuracy": (margin.detach() > 0).float()}
    return 2 * likelihood + beta * dpo_loss(margin, 1.0), numbers
