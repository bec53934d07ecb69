"""pass@k and intervals against numbers computed by hand, enumeration and simulation."""

from __future__ import annotations

import random
from itertools import combinations
from math import comb

import pytest

from assay.maths.estimates import mean_pass_at_k, pass_at_k, pass_interval, student_t


@pytest.mark.parametrize(
    ("samples", "passed", "k", "expected"),
    [
        (5, 2, 1, 2 / 5),
        (5, 2, 2, 1 - 3 / 10),
        (5, 4, 2, 1.0),
        (5, 0, 5, 0.0),
        (1, 1, 1, 1.0),
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_is_the_hand_computed_chance(
    samples: int, passed: int, k: int, expected: float
) -> None:
    assert pass_at_k(samples, passed, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_subsets_of_k_that_hold_a_pass() -> None:
    for samples in range(1, 8):
        for passed in range(samples + 1):
            for k in range(1, samples + 1):
                subsets = list(combinations([True] * passed + [False] * (samples - passed), k))
                assert pass_at_k(samples, passed, k) == pytest.approx(
                    sum(map(any, subsets)) / len(subsets)
                )


def test_pass_at_k_stays_exact_with_thousands_of_samples() -> None:
    assert pass_at_k(10_000, 1, 1_000) == pytest.approx(0.1, abs=1e-12)


@pytest.mark.parametrize(
    ("samples", "passed", "k"), [(4, 2, 5), (4, 5, 1), (4, -1, 1), (4, 2, 0), (0, 0, 1)]
)
def test_pass_at_k_refuses_impossible_counts(samples: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(samples, passed, k)


def test_the_mean_weighs_tasks_equally_however_many_samples_they_have() -> None:
    assert mean_pass_at_k([(4, 1), (2, 1)], 1) == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert mean_pass_at_k([(4, 1), (2, 1)], 2) == pytest.approx((1 / 2 + 1) / 2)
    with pytest.raises(ValueError, match="no tasks"):
        mean_pass_at_k([], 1)


@pytest.mark.parametrize(
    ("passed", "low", "high"),
    [(5, 0.07, 0.31), (12, 0.22, 0.53), (16, 0.33, 0.65), (0, 0.0, 0.10), (33, 0.90, 1.0)],
)
def test_with_one_sample_a_task_the_interval_is_wilsons(
    passed: int, low: float, high: float
) -> None:
    interval = pass_interval([(1, 1)] * passed + [(1, 0)] * (33 - passed))
    assert (round(interval.low, 2), round(interval.high, 2)) == (low, high)


def test_wilsons_interval_matches_the_formula_worked_by_hand() -> None:
    # p = 1/2, n = 4, z² = 3.8415: centre 1/2, half = sqrt(z² / (n + z²)) / 2
    interval = pass_interval([(1, 1), (1, 1), (1, 0), (1, 0)])
    assert interval.low == pytest.approx(0.5 - (3.841459 / 7.841459) ** 0.5 / 2, abs=1e-6)
    assert interval.low + interval.high == pytest.approx(1.0)


def test_a_lower_confidence_gives_a_narrower_interval() -> None:
    counts = [(1, 1)] * 8 + [(1, 0)] * 8
    # z = 0.674490 at 50 %: half = sqrt(0.454936 / 16.454936) / 2
    assert pass_interval(counts, 0.5).high == pytest.approx(
        0.5 + (0.454936 / 16.454936) ** 0.5 / 2, abs=1e-6
    )


def test_repeating_samples_that_always_agree_tells_nothing_new() -> None:
    once = pass_interval([(1, 1)] * 4 + [(1, 0)] * 12)
    sixteen = pass_interval([(16, 16)] * 4 + [(16, 0)] * 12)
    assert (sixteen.low, sixteen.high) == pytest.approx((once.low, once.high))


def test_samples_that_vary_as_much_inside_a_task_as_between_tasks_count_but_for_students_t() -> (
    None
):
    # each of 32 tasks passes 2 of 4: 128 samples, half passed
    alike, single = pass_interval([(4, 2)] * 32), pass_interval([(1, 1), (1, 0)] * 64)
    ratio = student_t(0.95, 31 / 0.75) / student_t(0.95, 1e9)  # design effect 1/4
    assert alike.high - 0.5 == pytest.approx(ratio * (single.high - 0.5), abs=0.0005)


def test_one_task_alone_says_little_however_often_it_is_sampled() -> None:
    interval = pass_interval([(100, 50)])
    assert interval.high - interval.low > 0.8


def test_about_ninety_five_in_a_hundred_intervals_hold_the_truth() -> None:
    draw = random.Random(0)
    truth, rounds, tasks, samples = 0.25, 400, 33, 4  # the mean of Beta(0.5, 1.5)
    held = 0
    for _ in range(rounds):
        chances = [draw.betavariate(0.5, 1.5) for _ in range(tasks)]
        counts = [
            (samples, sum(draw.random() < chance for _ in range(samples))) for chance in chances
        ]
        interval = pass_interval(counts)
        held += interval.low <= truth <= interval.high
    assert 0.92 < held / rounds < 0.98


def test_no_interval_of_five_single_samples_can_hold_every_truth_in_93_to_97_of_100() -> None:
    """The truth 0.2733 of `bench.intervals`: an interval rule covers it for some run of the six
    outcomes, and no run of them has that chance; this rule's is the nearest above.
    """
    truth = 0.3 * 0.8 + 0.7 / 21
    chances = [comb(5, x) * truth**x * (1 - truth) ** (5 - x) for x in range(6)]
    runs = {sum(chances[low:high]) for low in range(6) for high in range(low + 1, 7)}
    assert not any(0.93 <= one <= 0.97 for one in runs)
    intervals = [pass_interval([(1, 1)] * x + [(1, 0)] * (5 - x)) for x in range(6)]
    held = sum(
        chance
        for chance, one in zip(chances, intervals, strict=True)
        if one.low <= truth <= one.high
    )
    assert held == pytest.approx(min(one for one in runs if one > 0.97))
