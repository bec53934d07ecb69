"""The comparison of two models against tables, numbers worked by hand, and simulation."""

from __future__ import annotations

from itertools import product
from math import comb, inf

import pytest

from assay.maths.comparison import holm, paired_difference, seed_spread, sign_flip_test, t_p_value
from assay.maths.estimates import student_t
from bench.intervals import compared, coverage


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (19, 2.09302), (163, 1.97462), (inf, 1.95996)],
)
def test_students_t_is_that_of_the_tables(freedom: float, expected: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(expected, abs=1e-5)
    assert t_p_value(expected, freedom) == pytest.approx(0.05, abs=1e-5)


def test_with_one_sample_a_task_the_test_is_mcnemars_exact_one() -> None:
    changes = [1] * 8 + [-1] * 2 + [0] * 20
    assert sign_flip_test(changes) == pytest.approx(2 * sum(comb(10, k) for k in range(3)) / 2**10)
    found = paired_difference([0] * 30, [1] * 8 + [0] * 22)
    assert (found.test, found.p_value) == ("McNemar, exact", 2 / 2**8)


def test_the_p_value_is_the_share_of_sign_choices_that_are_as_far_from_zero() -> None:
    changes = [0.5, 0.25, -0.25, 0.125, 0.5, 0.0]
    sums = [
        abs(sum(sign * change for sign, change in zip(signs, changes, strict=True)))
        for signs in product((1, -1), repeat=6)
    ]
    expected = sum(one >= abs(sum(changes)) for one in sums) / 2**6
    assert sign_flip_test(changes) == expected
    assert sign_flip_test([0, 0]) == sign_flip_test([0.5, -0.5]) == 1


def test_the_interval_with_one_sample_is_bonett_and_prices() -> None:
    # 12 wins and 4 losses of 40: shares 13 / 42 and 5 / 42 after one more of each
    found = paired_difference([0] * 12 + [1] * 28, [1] * 12 + [0] * 4 + [1] * 24)
    won, lost = 13 / 42, 5 / 42
    error = ((won + lost - (won - lost) ** 2) / 41) ** 0.5
    assert (found.wins, found.losses) == (12, 4)
    assert found.difference == pytest.approx(0.2)
    assert found.interval.low == pytest.approx(won - lost - student_t(0.95, 41) * error)
    assert found.interval.high == pytest.approx(won - lost + student_t(0.95, 41) * error)


def test_so_many_tasks_are_needed_that_a_difference_is_found_four_times_in_five() -> None:
    # spread (18 - 42 (8 / 42)²) / 41, and ((1.95996 + 0.84162) / 0.2)² = 196.22
    found = paired_difference([0] * 12 + [1] * 28, [1] * 12 + [0] * 4 + [1] * 24)
    assert found.tasks_needed == 79
    assert paired_difference([0, 1], [0, 1]).tasks_needed is None


def test_several_seeds_widen_the_interval_by_their_own_variance() -> None:
    before, after = [0.2, 0.4, 0.6, 0.3] * 10, [0.5, 0.6, 0.8, 0.7] * 10
    seeds = seed_spread([0.375, 0.375]), seed_spread([0.55, 0.75])
    alone = paired_difference(before, after, 8)
    both = paired_difference(before, after, 8, seeds)
    assert seeds[1].deviation == pytest.approx(0.1 * 2**0.5)
    assert both.interval.high - both.interval.low > 3 * (alone.interval.high - alone.interval.low)
    assert both.p_value > 0.05 > alone.p_value
    assert both.test == "Student's t over tasks and seeds"


def test_holm_multiplies_the_smallest_by_all_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("shape", "tasks", "samples"),
    [("0.02 or 0.98, 15 % solvable", 20, 4), ("0.02 or 0.98, half each", 20, 4),
     ("beta(0.5, 2)", 164, 1), ("0.02 or 0.98, 15 % solvable", 164, 16)],
)  # fmt: skip
def test_the_interval_of_pass_at_1_holds_the_truth_in_93_to_97_of_100_simulations(
    shape: str, tasks: int, samples: int
) -> None:
    assert 0.93 <= coverage(shape, tasks, samples, 1000) <= 0.97


def test_an_interval_of_few_tasks_that_nearly_all_fail_knows_of_tasks_not_drawn() -> None:
    assert coverage("0.02 or 0.98, 15 % solvable", 5, 16, 400) > 0.93


def test_no_difference_is_found_at_most_5_times_in_100_and_a_large_one_mostly() -> None:
    none, covered = compared("beta(0.3, 0.3)", 0.0, 20, 4, 400)
    assert none <= 0.05
    assert covered >= 0.93
    assert compared("beta(0.5, 2)", 0.3, 20, 4, 100)[0] > 0.8


@pytest.mark.long
@pytest.mark.parametrize("tasks", [164, 500])
def test_many_simulations_find_no_difference_5_times_in_100_and_cover_the_truth(tasks: int) -> None:
    for shape in ("0.02 or 0.98, half each", "beta(0.3, 0.3)", "beta(0.5, 2)"):
        for samples in (1, 4, 16):
            assert 0.93 <= coverage(shape, tasks, samples, 1000) <= 0.97
            if (tasks, samples) != (500, 16):
                assert compared(shape, 0.0, tasks, samples, 1000)[0] <= 0.06, "5 %, and chance"
