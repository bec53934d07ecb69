"""Proves that a server writes with the weights it was given: it and the policy score the same
tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING

from assay.errors import MachineError

if TYPE_CHECKING:
    from assay.policy.load import Policy

PREFIXES = range(9, 145, 9)
"""Lengths of what is scored: the cache is shared in blocks of 16, on a CPU of 128, and a stale one
must be seen too."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest difference of a log-probability in nats, by the type of the server's weights."""
MOVED = {"float32": 1e-5, "bfloat16": 1e-3}
"""What the policy's numbers must have moved for the server's to have to move as well."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the policy makes of the probe's tokens."""

    tokens: tuple[int, ...]
    """The same for all versions of a policy."""
    prefixes: tuple[int, ...]
    """[N] how many of them stand before each that is scored."""
    expected: tuple[float, ...]
    """[N] log-probabilities."""

    def check(
        self, found: Sequence[float], before: tuple[Probe, Sequence[float]] | None, dtype: str
    ) -> float:
        """The largest difference of the server's numbers `found` [N]; `before` has those of the
        weights before these.

        Raises MachineError when it is too large, or when the policy's numbers have moved and the
        server's have not.
        """
        largest = _largest(found, self.expected)
        if largest > TOLERANCE[dtype]:
            raise MachineError(
                f"the server still writes with other weights: a log-probability is {largest:.2g}"
                f" nats off the policy's ({TOLERANCE[dtype]:g} allowed); does it serve the same"
                f" model, in {dtype}, to this run alone?"
            )
        if (
            before
            and _largest(before[0].expected, self.expected) > MOVED[dtype]
            and list(found) == list(before[1])
        ):
            raise MachineError(
                "the server still writes with other weights: the policy has moved, and it has not"
            )
        return largest


def make_probe(policy: Policy) -> Probe:
    """What `policy` makes of the probe's tokens now."""
    import torch

    from assay.policy.forward import forward
    from assay.types import Batch

    prefixes = tuple(
        length for length in PREFIXES if length < (policy.context or max(PREFIXES) + 1)
    )
    vocabulary = policy.model.get_input_embeddings().weight.shape[0]
    tokens = tuple(random.Random(0).choices(range(vocabulary), k=prefixes[-1] + 1))
    row = torch.tensor([tokens], device=policy.device)
    mask = torch.ones_like(row, dtype=torch.bool)
    mask[0, 0] = False
    zeros = torch.zeros(row.shape, device=policy.device)
    was_training = policy.model.training
    policy.model.eval()
    try:
        with torch.no_grad():
            batch = Batch(
                row,
                torch.ones_like(mask),
                mask,
                zeros,
                zeros,
                zeros[:, :1],
                torch.zeros_like(row[:, 0]),
            )
            found: list[float] = forward(policy.model, batch).logprobs[0].tolist()
    finally:
        policy.model.train(was_training)
    return Probe(tokens, prefixes, tuple(found[length] for length in prefixes))


def _largest(some: Sequence[float], others: Sequence[float]) -> float:
    differences = [abs(one - other) for one, other in zip(some, others, strict=True)]
    return max(differences) if not any(map(isnan, differences)) else inf
