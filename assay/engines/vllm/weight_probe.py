"""Checks that a server generates with the synced weights: it and the policy score the same tokens,
and their log-probabilities must agree.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING

from assay.errors import MachineError

if TYPE_CHECKING:
    from assay.policy.load_model import Policy

PREFIXES = range(9, 145, 9)
"""Lengths of the scored prefixes. vLLM caches prefixes in blocks of 16 tokens, or 128 on a CPU;
several full blocks show a stale KV cache."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest allowed difference of a log-probability in nats, by data type of the server's weights."""
MOVED = {"float32": 1e-5, "bfloat16": 1e-3}
"""If the policy's log-probabilities change by more than this, the server's must change too."""


@dataclass(frozen=True, slots=True)
class WeightProbe:
    """The policy's log-probabilities of the probe's tokens."""

    tokens: tuple[int, ...]
    """The same for all versions of a policy."""
    prefixes: tuple[int, ...]
    """[N] how many tokens stand before each scored one."""
    expected: tuple[float, ...]
    """[N] log-probabilities."""

    def check(self, scores: Sequence[float], before: Probed | None, dtype: str) -> float:
        """The largest difference of the server's `scores` [N]. `before` has the probe and the
        scores of the previous weights.

        Raises MachineError when it is too large, or when the policy's log-probabilities changed and
        the server's did not.
        """
        largest = _largest_difference(scores, self.expected)
        if largest > TOLERANCE[dtype]:
            raise MachineError(
                f"the server still generates with other weights: a log-probability is {largest:.2g}"
                f" nats off the policy's ({TOLERANCE[dtype]:g} allowed); check that it serves the"
                f" same model, in {dtype}, to this run alone"
            )
        moved = before and _largest_difference(before[0].expected, self.expected) > MOVED[dtype]
        if before and moved and list(scores) == list(before[1]):
            raise MachineError(
                "the server still generates with other weights: the policy's log-probabilities"
                " changed, the server's did not"
            )
        return largest


Probed = tuple[WeightProbe, Sequence[float]]
"""A probe, and a server's scores of it."""


def make_probe(policy: Policy) -> WeightProbe:
    """A probe with the current weights of `policy`."""
    import torch

    from assay.policy.blocks import computing_on

    limit = policy.context or max(PREFIXES) + 1
    prefixes = tuple(length for length in PREFIXES if length < limit)
    vocabulary = policy.model.get_input_embeddings().weight.shape[0]
    tokens = tuple(random.Random(0).choices(range(vocabulary), k=prefixes[-1] + 1))
    row = torch.tensor([tokens], device=policy.device)
    was_training = policy.model.training
    policy.model.eval()
    try:
        with torch.no_grad(), computing_on(policy.device, policy.model):
            logits = policy.model(input_ids=row, use_cache=False).logits[0].float()
    finally:
        policy.model.train(was_training)
    logprobs = logits.log_softmax(-1)
    expected = tuple(float(logprobs[length - 1, tokens[length]]) for length in prefixes)
    return WeightProbe(tokens, prefixes, expected)


def _largest_difference(some: Sequence[float], others: Sequence[float]) -> float:
    differences = [abs(value - other) for value, other in zip(some, others, strict=True)]
    return max(differences) if not any(map(isnan, differences)) else inf
