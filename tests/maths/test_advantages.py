"""Advantages, schedules and seeds against numbers computed by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from assay.maths.advantages import Scale, centred, group_centred, standardised
from assay.maths.schedules import factor
from assay.maths.seeds import derive

GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_centred_takes_the_mean_away() -> None:
    assert centred(torch.tensor([1.0, 0.0, 0.5])).tolist() == [0.5, -0.5, 0.0]


def test_standardised_divides_by_the_population_standard_deviation() -> None:
    assert standardised(torch.tensor([1.0, 0.0, 1.0, 0.0])).tolist() == [1.0, -1.0, 1.0, -1.0]


def test_a_group_with_one_success_in_four_gives_it_the_square_root_of_three() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    found = group_centred(rewards, GROUPS, "group")
    # std of (1,0,0,0) is sqrt(3)/4: 0.75 / that is sqrt(3), -0.25 / that is -1/sqrt(3)
    assert found.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3, 1, 1, -1, -1])


def test_unscaled_advantages_are_the_differences_from_the_groups_mean() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    assert group_centred(rewards, GROUPS, "none").tolist() == [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]


def test_batch_scale_divides_every_group_by_the_same_deviation() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    deviation = math.sqrt(3 / 8 * 5 / 8)
    assert group_centred(rewards, GROUPS, "batch").tolist() == pytest.approx(
        [value / deviation for value in (0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5)]
    )


@pytest.mark.parametrize("scale", get_args(Scale))
def test_equal_rewards_give_exactly_no_advantage_even_where_they_do_not_round(scale: Scale) -> None:
    rewards, groups = torch.tensor([0.35] * 7 + [0.1, 0.9]), torch.tensor([0] * 7 + [1] * 2)
    assert (rewards[:7] - rewards[:7].sum() / 7).abs().max() > 0, "the mean of seven does not come out even"
    assert group_centred(rewards, groups, scale)[:7].tolist() == [0.0] * 7
    assert group_centred(rewards, groups, scale)[7:].abs().min() > 0.3


def test_equal_rewards_of_a_batch_are_not_blown_up_by_rounding() -> None:
    assert standardised(torch.tensor([0.35] * 7)).tolist() == [0.0] * 7


def test_advantages_of_every_group_add_up_to_nothing() -> None:
    rewards = torch.rand(8, generator=torch.Generator().manual_seed(0))
    for scale in get_args(Scale):
        assert group_centred(rewards, GROUPS, scale)[:4].sum().item() == pytest.approx(0, abs=1e-6)


def test_the_rate_rises_over_the_warm_up_then_follows_its_schedule() -> None:
    assert [factor(step, 10, 4, "constant") for step in (0, 1, 3, 4, 9)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert [factor(step, 12, 4, "linear") for step in (4, 8, 12)] == [1.0, 0.5, 0.0]
    assert [factor(step, 12, 4, "cosine") for step in (4, 8, 12)] == pytest.approx([1.0, 0.5, 0.0])


def test_seeds_differ_by_purpose_and_are_the_same_everywhere() -> None:
    assert derive(0, "sample", 1) == 4_703_416_825_124_098_946
    assert len({derive(seed, word, step) for seed in (0, 1) for word in ("a", "b") for step in (0, 1)}) == 8
    assert all(0 <= derive(n) < 2**63 for n in range(100))
