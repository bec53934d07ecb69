"""Losses against numbers computed by hand, and the identities that relate them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from assay.maths.kl import k1, k2, k3
from assay.maths.losses import (
    cispo_loss,
    clipped_surrogate,
    clipped_value_loss,
    cross_entropy,
    dpo_loss,
    is_clipped,
    reinforce_loss,
)
from assay.maths.masked import LossMean, masked_sum, token_weights


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_cross_entropy_is_minus_the_log_probability() -> None:
    assert cross_entropy(row(math.log(0.5), math.log(0.25))).tolist() == [
        [math.log(2), math.log(4)]
    ]


def test_policy_gradient_weighs_each_token_by_its_advantage() -> None:
    assert reinforce_loss(row(-2.0, -3.0), row(0.5, -1.0)).tolist() == [[1.0, -3.0]]


RATIOS = row(1.5, 1.5, 0.5, 0.5, 1.1, 4.0)
ADVANTAGES = row(2.0, -2.0, 2.0, -2.0, 1.0, -1.0)


def gradient(loss: Callable[[torch.Tensor], torch.Tensor], logprobs: torch.Tensor) -> torch.Tensor:
    leaf = logprobs.clone().requires_grad_()
    loss(leaf).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return leaf.grad


def test_the_clipped_surrogate_takes_the_more_cautious_of_ratio_and_clip() -> None:
    loss = clipped_surrogate(RATIOS, ADVANTAGES, 0.2, 0.28)
    # -min(3, 2.56), -min(-3, -2.56), -min(1, 1.6), -min(-1, -1.6), -1.1, -min(-4, -1.28)
    assert loss.tolist()[0] == pytest.approx([-2.56, 3.0, -1.0, 1.6, -1.1, 4.0])


def test_clipped_marks_where_the_clip_stops_the_gradient() -> None:
    bounds = (0.2, 0.28)
    expected = [[True, False, False, True, False, False]]
    assert is_clipped(RATIOS, ADVANTAGES, *bounds).bool().tolist() == expected
    found = gradient(
        lambda logprobs: clipped_surrogate(logprobs.exp(), ADVANTAGES, *bounds), RATIOS.log()
    )
    assert (found == 0).tolist() == expected


def test_cispo_bounds_the_weight_and_keeps_every_tokens_gradient() -> None:
    logprobs = row(-1.0, -2.0, -3.0)
    ratios, advantages = row(9.0, 0.1, 1.5), row(2.0, -1.0, 1.0)
    loss = cispo_loss(ratios, logprobs, advantages, 0.8, 4.0)
    assert loss.tolist()[0] == pytest.approx([5 * 2 * 1.0, -0.2 * 2.0, 1.5 * 3.0])
    found = gradient(
        lambda lp: cispo_loss(lp.exp() / logprobs.exp() * ratios, lp, advantages, 0.8, 4.0),
        logprobs,
    )
    assert found.tolist()[0] == pytest.approx([-10.0, 0.2, -1.5]), (
        "the weight itself has no gradient"
    )


def test_on_policy_every_surrogate_has_reinforces_gradient() -> None:
    advantages, logprobs = row(0.7, -1.3, 0.0), row(-1.0, -2.0, -0.5)
    expected = gradient(lambda lp: reinforce_loss(lp, advantages), logprobs)
    losses: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda lp: clipped_surrogate((lp - logprobs).exp(), advantages, 0.2, 0.28),
        lambda lp: cispo_loss((lp - logprobs).exp(), lp, advantages, 1.0, 4.0),
    ]
    for loss in losses:
        assert torch.equal(gradient(loss, logprobs), expected)


def test_the_preference_loss_at_the_reference_is_log_two_and_falls_with_the_margin() -> None:
    assert dpo_loss(torch.zeros(1), 0.1).item() == pytest.approx(math.log(2))
    # beta m = ln 3: -log(3/4)
    assert dpo_loss(torch.tensor([10 * math.log(3)]), 0.1).item() == pytest.approx(math.log(4 / 3))


def test_the_clipped_value_loss_takes_the_larger_error() -> None:
    values, old, returns = row(1.0, 1.0, 0.1), row(0.0, 0.0, 0.0), row(2.0, 0.5, 1.0)
    # towards the return, but no further than 0.2: (0.2 - 2)^2; beyond it: (1 - 0.5)^2; within the
    # bound: (0.1 - 1)^2
    assert clipped_value_loss(values, old, returns, 0.2).tolist()[0] == pytest.approx(
        [1.62, 0.125, 0.405]
    )


@pytest.mark.parametrize(
    ("mean", "weights"),
    [
        ("tokens", [1 / 12] * 3),
        ("completions", [1 / 6, 1 / 18, 1 / 12]),
        # two groups, of 2 + 6 and of 4 tokens
        ("prompts", [1 / 16, 1 / 16, 1 / 8]),
        ("constant", [1 / 30] * 3),
    ],
)
def test_a_loss_is_averaged_over_tokens_completions_prompts_or_a_constant_length(
    mean: LossMean, weights: list[float]
) -> None:
    lengths, groups = torch.tensor([2.0, 6.0, 4.0]), torch.tensor([0, 0, 1])
    found = token_weights(lengths, groups, mean, constant=10.0)
    assert found.tolist() == pytest.approx(weights)


def test_the_three_kl_estimators_agree_with_hand_numbers() -> None:
    policy, reference = row(math.log(0.5)), row(math.log(0.25))
    assert k1(policy, reference).item() == pytest.approx(math.log(2))
    assert k2(policy, reference).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(policy, reference).item() == pytest.approx(0.5 - 1 - math.log(0.5))


def test_k1_and_k3_are_unbiased_for_the_true_kl() -> None:
    p, q = (
        torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64),
        torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64),
    )
    true = (p * (p / q).log()).sum().item()
    for estimate in (k1, k3):
        assert (p * estimate(p.log(), q.log())).sum().item() == pytest.approx(true)
    assert (k3(p.log(), q.log()) >= 0).all()


def test_equal_policies_have_no_kl() -> None:
    logprobs = row(-0.3, -7.0)
    for estimate in (k1, k2, k3):
        assert estimate(logprobs, logprobs).abs().max().item() == 0.0


def test_masked_values_may_be_nan_or_infinite_and_leak_nothing() -> None:
    values = torch.tensor([1.0, float("nan"), float("inf"), 3.0], requires_grad=True)
    mask = torch.tensor([True, False, False, True])
    total = masked_sum(values, mask)
    total.backward()  # type: ignore[no-untyped-call]
    assert total.item() == 4.0
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0, 0.0, 1.0]
