"""Advantages, schedules and seeds against numbers computed by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from assay.maths.advantages import (
    Baseline,
    Scale,
    completion_advantages,
    gae,
    group_advantages,
    whiten,
)
from assay.maths.rewards import overlong_punishment
from assay.maths.schedules import schedule_factor
from assay.maths.seeds import derive

GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


REWARDS = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("none", [1, 0, 0, 0, 1, 1, 0, 0]),
        ("batch", [0.625, -0.375, -0.375, -0.375, 0.625, 0.625, -0.375, -0.375]),
        ("running", [0.8, -0.2, -0.2, -0.2, 0.8, 0.8, -0.2, -0.2]),
        ("group", [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]),
        # of four: the success against three failures; a failure against one success in three
        ("leave_one_out", [1, -1 / 3, -1 / 3, -1 / 3, 2 / 3, 2 / 3, -2 / 3, -2 / 3]),
    ],
)
def test_each_baseline_is_subtracted_as_its_name_says(
    baseline: Baseline, expected: list[float]
) -> None:
    found = completion_advantages(REWARDS, GROUPS, baseline, "none", running=0.2)
    assert found.tolist() == pytest.approx(expected)


def test_without_a_baseline_rewards_are_divided_by_the_deviation_asked_for() -> None:
    batch, first = math.sqrt(3 / 8 * 5 / 8), math.sqrt(3) / 4
    assert completion_advantages(REWARDS, GROUPS, "none", "batch")[0].item() == pytest.approx(
        1 / batch
    )
    assert completion_advantages(REWARDS, GROUPS, "none", "group").tolist() == pytest.approx(
        [1 / first, 0, 0, 0, 2, 2, 0, 0]
    )


def test_the_batch_as_one_group_is_standardised_by_its_population_deviation() -> None:
    found = completion_advantages(
        torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 1, 2, 3]), "batch", "batch"
    )
    assert found.tolist() == [1.0, -1.0, 1.0, -1.0]


def test_left_out_of_its_own_baseline_a_single_success_keeps_its_advantage_at_any_scale() -> None:
    for scale in get_args(Scale):
        found = completion_advantages(
            torch.tensor([1.0, 0, 0, 0]), torch.zeros(4, dtype=torch.int64), "leave_one_out", scale
        )
        assert found[0] >= 1.0
        assert found[1:].tolist() == pytest.approx([-found[0].item() / 3] * 3)


def test_leave_one_out_gives_a_completion_alone_in_its_group_no_advantage() -> None:
    assert completion_advantages(
        torch.tensor([0.7]), torch.tensor([0]), "leave_one_out", "none"
    ).tolist() == [0.0]


@pytest.mark.parametrize("baseline", get_args(Baseline))
@pytest.mark.parametrize("scale", get_args(Scale))
def test_no_baseline_and_no_scale_amplifies_the_rounding_of_equal_rewards(
    baseline: Baseline, scale: Scale
) -> None:
    rewards = torch.tensor([0.35] * 7)
    found = completion_advantages(
        rewards, torch.zeros(7, dtype=torch.int64), baseline, scale, running=0.35
    )
    expected = 0.0 if baseline != "none" else 1.0 if scale == "mean" else 0.35
    assert found.tolist() == pytest.approx([expected] * 7, abs=2e-7)


def test_a_group_with_one_success_in_four_gives_it_the_square_root_of_three() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    found = group_advantages(rewards, GROUPS, "group")
    # std of (1,0,0,0) is sqrt(3)/4: 0.75 / that is sqrt(3), -0.25 / that is -1/sqrt(3)
    assert found.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3, 1, 1, -1, -1])


def test_unscaled_advantages_are_the_differences_from_the_groups_mean() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    assert group_advantages(rewards, GROUPS, "none").tolist() == [
        0.75,
        -0.25,
        -0.25,
        -0.25,
        0.5,
        0.5,
        -0.5,
        -0.5,
    ]


def test_batch_scale_divides_every_group_by_the_same_deviation() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    deviation = math.sqrt(3 / 8 * 5 / 8)
    assert group_advantages(rewards, GROUPS, "batch").tolist() == pytest.approx(
        [value / deviation for value in (0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5)]
    )


@pytest.mark.parametrize("scale", get_args(Scale))
def test_a_group_of_zero_variance_gets_exactly_zero_although_its_mean_is_rounded(
    scale: Scale,
) -> None:
    rewards, groups = torch.tensor([0.35] * 7 + [0.1, 0.9]), torch.tensor([0] * 7 + [1] * 2)
    assert (rewards[:7] - rewards[:7].sum() / 7).abs().max() > 0, (
        "the mean of seven does not come out even"
    )
    assert group_advantages(rewards, groups, scale)[:7].tolist() == [0.0] * 7
    assert group_advantages(rewards, groups, scale)[7:].abs().min() > 0.3


def test_gae_is_the_discounted_sum_of_td_errors() -> None:
    rewards, values = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.75])
    # TD errors with gamma 0.5: 0 + 0.125 - 0.5, 0 + 0.375 - 0.25, 1 - 0.75; each later one counts a
    # quarter
    td_errors = [-0.375, 0.125, 0.25]
    expected = [
        td_errors[0] + 0.25 * (td_errors[1] + 0.25 * 0.25),
        td_errors[1] + 0.25 * 0.25,
        td_errors[2],
    ]
    assert gae(rewards, values, gamma=0.5, lam=0.5).tolist() == pytest.approx(expected)


def test_gae_with_lambda_one_and_no_values_is_the_return() -> None:
    rewards = torch.tensor([0.5, -1.0, 2.0, 0.25])
    assert gae(rewards, torch.zeros(4), gamma=1.0, lam=1.0).tolist() == [
        1.75,
        1.25,
        2.25,
        0.25,
    ]
    assert gae(rewards, torch.zeros(4), gamma=0.5, lam=1.0).tolist() == pytest.approx(
        [0.5 - 0.5 + 0.5 + 0.03125, -1 + 1 + 0.0625, 2 + 0.125, 0.25]
    )


def test_gae_with_lambda_zero_and_a_right_critic_is_zero() -> None:
    rewards, values = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 1.0])
    assert gae(rewards, values, gamma=1.0, lam=0.0).tolist() == [0.0, 0.0, 0.0]


def test_whitening_gives_mean_zero_and_std_one_and_zeros_for_equal_numbers() -> None:
    assert whiten(torch.tensor([1.0, 3.0, 1.0, 3.0])).tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert whiten(torch.tensor([0.35] * 7)).tolist() == [0.0] * 7


def test_the_overlong_punishment_rises_over_the_buffer() -> None:
    # the paper's own numbers: 20,480 tokens at most, a buffer of 4,096
    assert [
        overlong_punishment(length, 20_480, 0.2) for length in (100, 16_384, 18_432, 20_480)
    ] == pytest.approx([0, 0, -0.5, -1])


def test_advantages_of_every_group_sum_to_zero() -> None:
    rewards = torch.rand(8, generator=torch.Generator().manual_seed(0))
    for scale in get_args(Scale):
        assert group_advantages(rewards, GROUPS, scale)[:4].sum().item() == pytest.approx(
            0, abs=1e-6
        )


def test_the_learning_rate_warms_up_then_follows_its_schedule() -> None:
    assert [schedule_factor(step, 10, 4, "constant") for step in (0, 1, 3, 4, 9)] == [
        0.25,
        0.5,
        1.0,
        1.0,
        1.0,
    ]
    assert [schedule_factor(step, 12, 4, "linear") for step in (4, 8, 12)] == [1.0, 0.5, 0.0]
    assert [schedule_factor(step, 12, 4, "cosine") for step in (4, 8, 12)] == pytest.approx(
        [1.0, 0.5, 0.0]
    )


def test_seeds_differ_by_purpose_and_are_the_same_everywhere() -> None:
    assert derive(0, "sample", 1) == 4_703_416_825_124_098_946
    assert (
        len({derive(seed, word, step) for seed in (0, 1) for word in ("a", "b") for step in (0, 1)})
        == 8
    )
    assert all(0 <= derive(n) < 2**63 for n in range(100))


def test_a_batchs_mean_can_go_with_a_groups_deviation() -> None:
    rewards, groups = (
        torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]),
        torch.tensor([0] * 4 + [1] * 4),
    )
    found = completion_advantages(rewards, groups, "batch", "group")
    first = 0.1875**0.5  # and of the second group 0.5
    assert found.tolist() == pytest.approx(
        [0.625 / first] + [-0.375 / first] * 3 + [1.25, 1.25, -0.75, -0.75]
    )
