"""The gradient of an algorithm is that of the same formula written another way: as a score function
with a weight for each token, in plain numbers.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.policy.forward import ModelOutput
from assay.types import Batch, Sample
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
    return logprobs.grad[given.mask].tolist()


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
    options: dict[str, Any] = {
        "divergence": divergence,
        "divergence_low": limit,
        "divergence_high": limit,
    }
    found = gradient("dppo", sampled(), **options)
    assert found == pytest.approx(expected, rel=1e-4)
    assert 0 < sum(value == 0 for value in found) < len(found) / 2


def test_sapos_gradient_is_a_score_with_a_bell_of_the_ratio_as_weight() -> None:
    expected = []
    for now, before, advantage in tokens(NOW, BEFORE, SIGNED):
        r, tau = math.exp(now - before), 1.3 if advantage > 0 else 1.7
        expected.append(-advantage * r / math.cosh(tau * (r - 1) / 2) ** 2)
    found = gradient(
        "sapo", sampled(), importance_sampling="none", tau_positive=1.3, tau_negative=1.7
    )
    assert found == pytest.approx(expected, rel=1e-4)


def test_cispos_gradient_to_the_sampler_is_a_score_with_one_truncated_weight() -> None:
    expected = [
        -advantage * min(math.exp(now - engine), 1.5)
        for now, engine, advantage in tokens(NOW, ENGINE, SIGNED)
    ]
    found = gradient("cispo", sampled(), anchor="sampler", clip_high=0.5)
    assert found == pytest.approx(expected, rel=1e-4)


def test_max_rls_expected_gradient_is_that_of_the_truncated_series_of_pass_at_k() -> None:
    """A policy that passes with probability q, over all outcomes of four completions.

    The reference is the derivative of log q cut off after three terms, by autograd.
    """
    size, chance = 4, 0.3
    q = torch.tensor(chance, dtype=torch.float64, requires_grad=True)
    series = -sum((1 - q) ** k / k for k in range(1, size))
    (expected,) = torch.autograd.grad(series, q)  # type: ignore[arg-type]
    found = 0.0
    algorithm = algorithms["max_rl"].build({"name": "max_rl"})
    for rewards in itertools.product((0.0, 1.0), repeat=size):
        group = [Sample((1, 2), (False, True), reward=reward, group="a") for reward in rewards]
        weight = math.prod(chance if reward else 1 - chance for reward in rewards)
        scores = [1 / chance if reward else -1 / (1 - chance) for reward in rewards]
        pairs = zip(algorithm.compute_advantages(group), scores, strict=True)
        found += weight * sum(sample.advantages[1] * score for sample, score in pairs) / size
    assert found == pytest.approx(expected.item(), rel=1e-5)


def test_rafts_gradient_is_reinforces_with_rewards_of_one_and_zero_and_no_baseline() -> None:
    """Among all completions of a step, with the mean over the tokens of those that passed."""
    rewards = torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.0], [0.0]]).expand_as(NOW).contiguous()
    options: dict[str, Any] = {"baseline": "none", "importance_sampling": "none"}
    expected = gradient("reinforce", sampled(old_logprobs=None, advantages=rewards), **options)
    kept = SEEN & (rewards > 0)
    found = gradient("raft", sampled(mask=kept))
    assert [value for value in expected if value] == found == [-1.0] * int(kept.sum())


def test_orpos_gradient_is_the_papers_penalty_times_a_contrast() -> None:
    """Equation 7 and 8: delta = 1 / (1 + odds_w / odds_l), times the scores over 1 - P."""
    signs = torch.tensor([[1.0], [-1.0]] * 3).expand_as(NOW).contiguous()
    means = (NOW * SEEN).sum(-1) / SEEN.sum(-1)
    odds = [math.exp(mean) / (1 - math.exp(mean)) for mean in means.tolist()]
    expected = []
    for row in range(ROWS):
        chosen, size = row % 2 == 0, int(SEEN[row].sum())
        first = row - row % 2
        delta = 1 / (1 + odds[first] / odds[first + 1])
        score = delta / (1 - math.exp(means[row].item())) / size
        # the term of a pair is on every token of both of its completions
        copies = int(SEEN[first].sum() + SEEN[first + 1].sum())
        each = -0.3 * copies * score * (1 if chosen else -1) - 2 * chosen
        expected += [each] * size
    found = gradient("orpo", sampled(advantages=signs), beta=0.3)
    assert found == pytest.approx(expected, rel=1e-4)


def test_ktos_gradient_is_a_score_weighted_by_a_bell_of_the_margin() -> None:
    signs = SIGNED.sign()
    expected = []
    for row in range(ROWS):
        size, sign = int(SEEN[row].sum()), signs[row, 0].item()
        margin = sum((NOW[row] - BEFORE[row])[:size].tolist())
        bell = math.exp(-0.3 * margin) / (1 + math.exp(-0.3 * margin)) ** 2
        expected += [-sign * 0.3 * bell * (1.5 if sign > 0 else 0.5) * size] * size
    given = sampled(advantages=signs, reference_logprobs=BEFORE)
    options: dict[str, Any] = {"beta": 0.3, "desirable_weight": 1.5, "undesirable_weight": 0.5}
    assert gradient("kto", given, **options) == pytest.approx(expected, rel=1e-4)
