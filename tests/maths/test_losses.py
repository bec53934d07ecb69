"""Losses against numbers computed by hand, and the identities that relate them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from assay.maths.divergences import k1, k2, k3
from assay.maths.losses import clipped, clipped_surrogate, cross_entropy, policy_gradient
from assay.maths.masked import masked_sum


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_cross_entropy_is_minus_the_log_probability() -> None:
    assert cross_entropy(row(math.log(0.5), math.log(0.25))).tolist() == [[math.log(2), math.log(4)]]


def test_policy_gradient_weighs_each_token_by_its_advantage() -> None:
    assert policy_gradient(row(-2.0, -3.0), row(0.5, -1.0)).tolist() == [[1.0, -3.0]]


def test_the_clipped_surrogate_takes_the_more_cautious_of_ratio_and_clip() -> None:
    ratios = row(1.5, 1.5, 0.5, 0.5, 1.1)
    advantages = row(2.0, -2.0, 2.0, -2.0, 1.0)
    loss = clipped_surrogate(ratios.log(), torch.zeros(1, 5, dtype=torch.float64), advantages, 0.2, 0.28)
    # -min(3, 2.56), -min(-3, -2.56), -min(1, 1.6), -min(-1, -1.6), -1.1
    assert loss.tolist()[0] == pytest.approx([-2.56, 3.0, -1.0, 1.6, -1.1])


def test_clipped_marks_where_the_clip_stops_the_gradient() -> None:
    ratios = row(1.5, 1.5, 0.5, 0.5, 1.1)
    advantages = row(2.0, -2.0, 2.0, -2.0, 1.0)
    old = torch.zeros(1, 5, dtype=torch.float64)
    assert clipped(ratios.log(), old, advantages, 0.2, 0.28).tolist() == [[1.0, 0.0, 0.0, 1.0, 0.0]]
    logprobs = ratios.log().requires_grad_()
    clipped_surrogate(logprobs, old, advantages, 0.2, 0.28).sum().backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert (logprobs.grad == 0).tolist() == [[True, False, False, True, False]]


def test_on_policy_the_clipped_surrogate_has_reinforces_gradient() -> None:
    advantages = row(0.7, -1.3, 0.0)
    gradients = []
    losses: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda lp: clipped_surrogate(lp, lp.detach(), advantages, 0.2, 0.28),
        lambda lp: policy_gradient(lp, advantages),
    ]
    for loss in losses:
        logprobs = row(-1.0, -2.0, -0.5).requires_grad_()
        loss(logprobs).sum().backward()  # type: ignore[no-untyped-call]
        gradients.append(logprobs.grad)
    assert torch.equal(*gradients)  # type: ignore[arg-type]


def test_the_three_divergences_agree_with_hand_numbers() -> None:
    policy, reference = row(math.log(0.5)), row(math.log(0.25))
    assert k1(policy, reference).item() == pytest.approx(math.log(2))
    assert k2(policy, reference).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(policy, reference).item() == pytest.approx(0.5 - 1 - math.log(0.5))


def test_k1_and_k3_are_unbiased_for_the_true_divergence() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64), torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    true = (p * (p / q).log()).sum().item()
    for estimate in (k1, k3):
        assert (p * estimate(p.log(), q.log())).sum().item() == pytest.approx(true)
    assert (k3(p.log(), q.log()) >= 0).all()


def test_equal_policies_have_no_divergence() -> None:
    logprobs = row(-0.3, -7.0)
    for estimate in (k1, k2, k3):
        assert estimate(logprobs, logprobs).abs().max().item() == 0.0


def test_what_is_masked_may_be_nan_or_infinite_and_leaks_nothing() -> None:
    values = torch.tensor([1.0, float("nan"), float("inf"), 3.0], requires_grad=True)
    mask = torch.tensor([True, False, False, True])
    total = masked_sum(values, mask)
    total.backward()  # type: ignore[no-untyped-call]
    assert total.item() == 4.0
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0, 0.0, 1.0]
