"""What the processes of a job do for one another while they learn. Here, one process is all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from assay.config.sections import PolicySettings, RunSettings
from assay.errors import ModelError
from assay.policy.checkpoints import not_finite
from assay.policy.forward import ModelOutput, forward
from assay.policy.load_model import Policy, load_policy
from assay.policy.reference import Reference
from assay.train.optimizer import Optimizer, OptimizerSteps
from assay.types import Batch, Metrics, Sample

T = TypeVar("T")


def combined(rows: Sequence[Mapping[str, float]], how: Callable[..., float]) -> Metrics:
    """The numbers of some rows by name, each combined as `how` (sum, or a mean) says; the largest
    where a name ends in `_max`.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: (max if name.endswith("_max") else how)(row[name] for row in rows if name in row)
        for name in names
    }


class Ranks:
    """The ranks of a job: each learns from its share of the samples, and holds its shard of the
    weights. This is a job of one. Every rank makes the same calls in the same order.
    """

    number = 0
    """Of this rank, from 0."""

    def shard(self, policy: Policy, critic: Any) -> None:
        """Keep only this rank's part of the weights."""

    def optimizer(
        self, policy: Policy, settings: RunSettings, steps: int, critic: Any
    ) -> OptimizerSteps:
        """The optimizer of what this rank trains."""
        return Optimizer(policy.trainable, settings.optimizer, steps, critic=critic)

    def reference(self, policy: Policy) -> Any:
        """A `Reference`, which puts the weights of the stage's start in place."""
        return Reference(policy)

    def forward(self, model: Any, batch: Batch, *options: Any, **keywords: Any) -> ModelOutput:
        """As `policy.forward.forward`, of a sharded model."""
        return forward(model, batch, *options, **keywords)

    def share(self, samples: Sequence[Sample], *, whole_groups: bool = False) -> list[Sample]:
        """The samples that this rank learns from, about as many tokens as the others.
        `whole_groups`: no group is cut.

        Raises TrainingError for samples that ranks cannot learn from together.
        """
        return list(samples)

    def union(
        self, samples: Sequence[Sample], share: Sequence[Sample], *, whole_groups: bool = False
    ) -> list[Sample]:
        """The samples in order, with what every rank has computed of its share of them."""
        return list(share)

    def rounds(self, pieces: Sequence[T]) -> Iterable[T]:
        """The micro-batches of this rank. It keeps up with ranks that have more."""
        return pieces

    def totals(self, numbers: Mapping[str, float]) -> Metrics:
        """Each number summed over the ranks, or the largest where its name ends in `_max`."""
        return dict(numbers)

    def collect(self, batches: list[Batch]) -> list[Batch]:
        """The batches of all ranks, in the order of ranks."""
        return batches

    def whole(self, policy: Policy) -> Policy:
        """The policy with whole weights, for an engine."""
        return policy

    def save_policy(self, policy: Policy, folder: Path) -> None:
        """Write the policy as `Policy.save` does, without a rank that holds all of it."""
        policy.save(folder)

    def save(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        """Write whole tensors as safetensors."""
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)

    def restore_policy(self, policy: Policy, settings: PolicySettings) -> None:
        """Give the policy the trained weights of the one that the settings name."""
        policy.copy_weights(load_policy(settings).trainable)

    def read(self, file: Path, like: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """What this rank keeps of the tensors that `save` wrote; `like(name)` has its layout.

        Raises ModelError on all ranks where one reads NaN.
        """
        with safe_open(file, "pt") as whole:
            names = whole.keys()
            parts = {name: self.part(whole.get_slice(name), like(name)) for name in names}
        first = not_finite(parts.items())
        if wrong := self.totals({first: 1.0} if first else {}):
            raise ModelError(f"checkpoint file {file} is broken: {min(wrong)} is not finite")
        return parts

    def part(self, whole: Any, like: Tensor) -> Tensor:
        """What this rank keeps of a whole tensor, or of its place in a file, laid out as `like`."""
        part: Tensor = whole[...]
        return part.to(like.device)
