"""Ratios between policies and corrections for engines, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assay.maths.losses import (
    ImportanceSampling,
    RatioLevel,
    geometric_mask,
    importance_weights,
    ratio,
)

MASK = torch.tensor([[False, True, True, True, False]])
NEW = torch.tensor([[math.nan, -1.0, -2.0, -3.0, math.inf]])
OLD = torch.tensor([[0.0, -1.0 - math.log(2), -2.0 - math.log(4), -3.0, 0.0]])


@pytest.mark.parametrize(
    ("level", "expected"), [("token", [1, 2, 4, 1, 1]), ("mean", [2] * 5), ("product", [8] * 5)]
)
def test_a_ratio_is_of_a_token_or_of_the_whole_completion(
    level: RatioLevel, expected: list[float]
) -> None:
    assert ratio(NEW, OLD, MASK, level)[0].tolist() == pytest.approx(expected)


def test_of_a_single_token_all_ratios_are_the_same() -> None:
    one = torch.tensor([[False, False, True, False, False]])
    found = [ratio(NEW, OLD, one, level)[0, 2].item() for level in ("token", "mean", "product")]
    assert found == pytest.approx([4.0, 4.0, 4.0])


def test_a_ratio_stays_finite_however_far_apart_the_policies_are() -> None:
    far = ratio(
        torch.zeros(1, 2), torch.full((1, 2), -500.0), torch.ones(1, 2, dtype=torch.bool), "product"
    )
    assert far[0].tolist() == pytest.approx([math.exp(20)] * 2)


@pytest.mark.parametrize(
    ("how", "high", "expected"),
    [
        ("none", 3.0, [1, 1, 1, 1, 1]),
        ("token_truncate", 3.0, [1, 2, 3, 1, 1]),
        ("token_mask", 3.0, [1, 2, 0, 1, 1]),
        ("sequence_truncate", 3.0, [3] * 5),
        ("sequence_mask", 3.0, [0] * 5),
        ("sequence_mask", 9.0, [8] * 5),
    ],
)
def test_importance_sampling_weights_truncate_or_mask_tokens_or_sequences(
    how: ImportanceSampling, high: float, expected: list[float]
) -> None:
    assert importance_weights(NEW, OLD, MASK, how, 0.5, high)[0].tolist() == pytest.approx(expected)


def test_the_lower_bound_truncates_or_masks_small_importance_weights() -> None:
    engine, learner = torch.zeros(1, 1), torch.full((1, 1), math.log(0.25))
    seen = torch.ones(1, 1, dtype=torch.bool)
    assert importance_weights(learner, engine, seen, "token_truncate", 0.5, 5.0).item() == 0.5
    assert importance_weights(learner, engine, seen, "token_mask", 0.5, 5.0).item() == 0.0


def test_importance_sampling_weights_have_no_gradient() -> None:
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    assert not importance_weights(
        logprobs, torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "token_mask", 0, 2
    ).requires_grad


def test_the_geometric_mask_keeps_completions_whose_mean_ratio_is_inside_the_bounds() -> None:
    # ratios 2, 4 and 1: geometric mean 2, product 8
    for bounds, kept in (((0.5, 2.1), 1.0), ((0.5, 1.9), 0.0), ((2.1, 9.0), 0.0)):
        assert geometric_mask(NEW, OLD, MASK, *bounds)[0].tolist() == [kept] * 5


def test_the_geometric_mask_does_not_grow_with_length() -> None:
    lengths = 8, 4096
    found = []
    for length in lengths:
        engine, seen = torch.zeros(1, length), torch.ones(1, length, dtype=torch.bool)
        learner = torch.full((1, length), 0.005)
        found.append(geometric_mask(learner, engine, seen, 0.99, 1.01)[0, 0].item())
    assert found == [1.0, 1.0]
