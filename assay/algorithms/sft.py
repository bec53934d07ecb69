"""SFT: supervised fine-tuning, -log p of demonstrated tokens; prompts are masked."""

from torch import Tensor

from assay.algorithms.base import Algorithm, AlgorithmSettings, Numbers, algorithm
from assay.maths.losses import cross_entropy
from assay.policy.forward import ModelOutput
from assay.types import Batch


class Settings(AlgorithmSettings):
    """SFT has no settings of its own."""


def _loss(output: ModelOutput, batch: Batch) -> tuple[Tensor, Numbers]:
    return cross_entropy(output.logprobs), {}


@algorithm(Settings)
def sft(settings: Settings) -> Algorithm:
    """Supervised fine-tuning on demonstrations, prompts masked."""
    return Algorithm(loss=_loss, learns_from="dialogues", dropout=True)
