"""The gradient of an algorithm is that of the same formula written another way: as a score function
with a weight for each token, in plain numbers.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.policy.forward import ModelOutput
from assay.types import Batch
from tests.algorithms.test_losses import batch

ROWS, LENGTH = 6, 7
DRAW = torch.Generator().manual_seed(3)
ENGINE = -1.5 * torch.rand(ROWS, LENGTH, generator=DRAW)
BEFORE = ENGINE - 0.1 * torch.rand(ROWS, LENGTH, generator=DRAW)
NOW = (BEFORE + 1.2 * torch.randn(ROWS, LENGTH, generator=DRAW)).clamp(max=-0.01)
SEEN = torch.arange(LENGTH) < torch.tensor([[7], [6], [5], [4], [3], [2]])
SIGNED = torch.randn(ROWS, 1, generator=DRAW).expand(ROWS, LENGTH).contiguous()
"""Log-probabilities of the engine, before the first gradient step and now; mask and advantages."""


def sampled(**more: Any) -> Batch:
    given: dict[str, Any] = {
        "tokens": torch.zeros(ROWS, LENGTH, dtype=torch.int64), "attention": SEEN, "mask": SEEN,
        "logprobs": ENGINE, "old_logprobs": BEFORE, "advantages": SIGNED,
        "weights": torch.ones(ROWS, 1), "groups": torch.arange(ROWS) // 2,
    }  # fmt: skip
    return batch(**given | more)


def gradient(name: str, given: Batch, now: torch.Tensor = NOW, **settings: object) -> list[float]:
    """The derivative of the loss by log p of each trained token, by autograd."""
    logprobs = now.clone().requires_grad_()
    algorithm = algorithms[name].build({"name": name, **settings})
    losses, _ = algorithm.loss(ModelOutput(logprobs, torch.ones_like(now)), given)
    losses.masked_fill(~given.mask, 0.0).sum().backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    return logprobs.grad[given.mask].tolist()  # type: ignore[no-any-return]


def tokens(*values: torch.Tensor) -> list[tuple[float, ...]]:
    """The numbers of each trained token."""
    return list(zip(*(value[SEEN].tolist() for value in values), strict=True))


@pytest.mark.parametrize(("divergence", "limit"), [("tv", 0.1), ("kl", 0.02)])
def test_dppos_gradient_is_a_score_with_the_ratio_as_weight_inside_the_trust_region(
    divergence: str, limit: float
) -> None:
    expected = []
    for now, engine, advantage in tokens(NOW, ENGINE, SIGNED):
        p, m = math.exp(now), math.exp(engine)
        kl = m * math.log(m / p) + (1 - m) * math.log((1 - m) / (1 - p))
        valid = {
            "tv": p - m <= limit if advantage > 0 else p - m >= -limit,
            "kl": kl <= limit or (p <= m if advantage > 0 else p >= m),
        }
        expected.append(-p / m * advantage * valid[divergence])
    options = {"divergence": divergence, "divergence_low": limit, "divergence_high": limit}
    found = gradient("dppo", sampled(), **options)
    assert found == pytest.approx(expected, rel=1e-4)
    assert 0 < sum(value == 0 for value in found) < len(found) / 2
