"""Divergences of a sampled token against all others, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assay.maths.divergences import Divergence, binary_divergence, leaves_trust_region


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def test_the_total_variation_of_two_outcomes_is_the_difference_of_one() -> None:
    found = binary_divergence(logs(0.5, 0.1, 0.25), logs(0.2, 0.25, 0.25), "tv")
    assert found.tolist()[0] == pytest.approx([0.3, 0.15, 0.0])


def test_the_kl_is_from_the_sampler_to_the_policy() -> None:
    found = binary_divergence(logs(0.5, 0.1, 0.25), logs(0.2, 0.25, 0.25), "kl")
    first = 0.2 * math.log(0.4) + 0.8 * math.log(1.6)  # 0.1927
    second = 0.25 * math.log(2.5) + 0.75 * math.log(0.75 / 0.9)  # 0.0923
    assert found.tolist()[0] == pytest.approx([first, second, 0.0], abs=1e-9)


def test_the_binary_kl_is_at_most_that_over_the_vocabulary() -> None:
    draw = torch.Generator().manual_seed(0)
    policy, sampler = torch.randn(2, 50, 9, generator=draw, dtype=torch.float64).log_softmax(-1)
    whole = (sampler.exp() * (sampler - policy)).sum(-1)
    binary = binary_divergence(policy[:, :1].T, sampler[:, :1].T, "kl")[0]
    assert (binary <= whole + 1e-9).all()
    assert (binary > 0).all()


def test_a_certain_token_has_a_finite_divergence() -> None:
    found = binary_divergence(logs(1.0, 1.0, 1e-9), logs(1.0, 0.9, 1.0), "kl")
    assert torch.isfinite(found).all()
    assert found[0, 0].item() == pytest.approx(0.0, abs=1e-9)
    assert (found[0, 1:] > 1).all()


@pytest.mark.parametrize("kind", ["tv", "kl"])
def test_only_a_gradient_that_leads_away_is_stopped(kind: Divergence) -> None:
    policy, sampler = logs(0.5, 0.5, 0.1, 0.1, 0.21), logs(0.2, 0.2, 0.4, 0.4, 0.2)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    stopped = leaves_trust_region(policy, sampler, advantages, kind, 0.05, 0.05)
    # away upwards, back, back, away downwards, away but near
    assert stopped.tolist() == [[True, False, False, True, False]]


def test_each_direction_has_its_own_limit() -> None:
    policy, sampler = logs(0.5, 0.1), logs(0.2, 0.4)
    advantages = torch.tensor([[1.0, -1.0]])
    found = [
        leaves_trust_region(policy, sampler, advantages, "tv", *limits).tolist()[0]
        for limits in ((0.2, 0.4), (0.4, 0.2))
    ]
    assert found == [[False, True], [True, False]]


def test_a_token_without_advantage_is_never_outside() -> None:
    policy, sampler = logs(0.9, 0.1), logs(0.1, 0.9)
    assert not leaves_trust_region(policy, sampler, torch.zeros(1, 2), "tv", 0.1, 0.1).any()
