"""Drills that a model of one layer learns in seconds, and plug-ins that break a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from torch import Tensor

from assay.algorithms import Algorithm, algorithm
from assay.algorithms.base import Numbers
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults
from assay.engines.base import Engine, Opening, engine
from assay.engines.torch import TorchEngine
from assay.policy.forward import ModelOutput
from assay.policy.load_model import Policy
from assay.rewards import reward
from assay.tasks import task_set
from assay.types import Batch, Check, Rollout, Task


def tasks(check: str) -> Iterator[Task]:
    for n, word in enumerate(("none", "one", "two", "three", "four", "five")):
        program = "def f(x):\n    return x + {}\n"
        yield Task(
            word, f"# f(x): add {word}\n", (Check(check.format(n + 5)),), "f",
            demonstrations=(program.format(n), program.format(n + 1)),
        )  # fmt: skip


@task_set
def sums(split: str = "train") -> Iterator[Task]:
    """Additions, each with a right and a wrong demonstration."""
    yield from tasks("assert f(5) == {}")


@task_set
def impossible(split: str = "train") -> Iterator[Task]:
    """The same, with a check that nothing passes."""
    yield from tasks("assert f(5) == 'never'")


@task_set
def trivial(split: str = "train") -> Iterator[Task]:
    """The same, with a check that every program passes."""
    yield from tasks("assert f(5) != 'never'")


@reward
def same(rollout: Rollout) -> float:
    """The same for all."""
    return 0.5


@reward
def short(rollout: Rollout) -> float:
    """Less for every token."""
    return -rollout.length / 10


def confidence(
    settings: PolicyGradientSettings, output: ModelOutput, batch: Batch
) -> tuple[Tensor, Numbers]:
    return 3 * output.entropy, {}


@algorithm(with_defaults("As grpo.", scale="group"))
def narrow(settings: PolicyGradientSettings) -> Algorithm:
    """GRPO with an entropy bonus of the wrong sign: what is likely becomes likelier."""
    narrowing = build(settings, clipped_loss, None, confidence)
    return replace(narrowing, entropy_gradient=True)


class OldWeights(TorchEngine):
    """Keeps the weights that it was opened with, and says that it has the newest."""

    async def load(self, policy: Policy, version: int) -> None:
        """Load only the first weights."""
        if version == 0:
            await super().load(policy, version)
        self.version = version


@engine
async def old(opening: Opening[Policy]) -> AsyncIterator[Engine]:
    """An engine that misses every update."""
    running = OldWeights(opening.policy, opening.settings, separate_copy=True)
    try:
        yield running
    finally:
        await running.halt()
