"""Whether one model passes more of the same tasks than another. Standard library only.

Rates are a model's pass@1 of each task, in the same order for both models. Tasks are the draws: the
samples of one task, and the seeds of one recipe on it, only make its rate more exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, gcd, isclose, sqrt
from statistics import NormalDist, fmean, variance

from assay.maths.estimates import Interval, student_t

EXACT_TASKS = 500
"""Up to so many tasks that differ, the p-value is exact; beyond it is that of Student's t."""
GRID = 48
"""The exact test counts differences in units of 1 / GRID: those of 1, 2, 3, 4, 6, 8, 12 or 16
samples are whole numbers."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The second model against the first, on the same tasks."""

    tasks: int
    wins: int
    """Tasks of which the second passes more; `losses` of which it passes less."""
    losses: int
    difference: float
    """pass@1 of the second minus that of the first, in [-1, 1]."""
    interval: Interval
    """95 % confidence interval of the difference; it can hold 0 where the test is just
    significant, and the other way round, for they are made in different ways."""
    p_value: float
    """The chance of a difference as large, if there were none."""
    test: str
    """How the p-value was made."""
    tasks_needed: int | None
    """Tasks of which a test at 5 % finds a true difference of this size with a chance of 80 %.
    None for no difference."""


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """Runs of one recipe over seeds: the mean of pass@1, and the two sources of its variation."""

    seeds: int
    mean: float
    deviation: float | None
    """Standard deviation of pass@1 between seeds; None of one seed."""


def seed_spread(rates: Sequence[float]) -> SeedSpread:
    """The spread of pass@1 over the runs of a group."""
    deviation = sqrt(variance(rates)) if len(rates) > 1 else None
    return SeedSpread(len(rates), fmean(rates), deviation)


def paired_difference(
    first: Sequence[float], second: Sequence[float], samples: float = 1,
    seeds: Sequence[SeedSpread] = (),
) -> PairedDifference:  # fmt: skip
    """Compare the rates of two models, made of `samples` completions a task.

    Single runs: an exact test (`sign_flip_test`), and an interval by Student's t with one degree of
    freedom less than tasks, after two pseudo-tasks, one that each model wins, as Bonett and Price
    (2012) add them for one sample. With more samples these weigh 1 / sqrt(samples), or up to 1
    where hardly a task differs. Where one of the two groups has several `seeds`, their variance is
    added to that of tasks, and both test and interval are by t with Satterthwaite's degrees of
    freedom. Raises ValueError without tasks.
    """
    changes = [after - before for before, after in zip(first, second, strict=True)]
    tasks, difference = len(changes), fmean(changes)
    least = 1 / sqrt(samples)
    pseudo = least + (1 - least) * exp(-sum(change * change for change in changes))
    padded = [*changes, pseudo, -pseudo]
    centre = fmean(padded)
    spread = sum((change - centre) ** 2 for change in padded) / (tasks + 1)
    parts = [(spread / len(padded), tasks + 1.0)]
    several = [seed for seed in seeds if seed.deviation is not None]
    parts += [((seed.deviation or 0) ** 2 / seed.seeds, seed.seeds - 1.0) for seed in several]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / freedom_of_part for part, freedom_of_part in parts)
    half = student_t(0.95, freedom) * sqrt(total)
    few = sum(change != 0 for change in changes) <= EXACT_TASKS
    if few and not several:
        single = all(change in (-1, 0, 1) for change in changes)
        p_value, test = sign_flip_test(changes), "McNemar, exact" if single else "sign flip, exact"
    else:
        p_value = t_p_value(abs(centre) / sqrt(total), freedom)
        test = "Student's t over tasks and seeds" if several else "Student's t over tasks"
    normal = NormalDist().inv_cdf
    ratio = (normal(0.975) + normal(0.8)) / difference if difference else 0.0
    needed = ceil(ratio**2 * spread) if difference else None
    return PairedDifference(
        tasks, sum(change > 0 for change in changes), sum(change < 0 for change in changes),
        difference, Interval(max(-1.0, centre - half), min(1.0, centre + half)), p_value, test,
        needed,
    )  # fmt: skip


def sign_flip_test(changes: Sequence[float]) -> float:
    """The two-sided p-value of the mean change, exact under "each task's change is as likely as its
    opposite": the share of all 2^n choices of signs whose sum is as far from 0.

    With changes of -1, 0 and 1 it is McNemar's exact test. Changes are rounded to 1 / GRID, which
    keeps it exact: the rounding is symmetric. The choices are counted by a polynomial with a power
    for each sum, kept in one large integer.
    """
    whole = [round(GRID * change) for change in changes]
    unit = gcd(*whole) or 1
    sizes = [abs(size) // unit for size in whole if size]
    bits, counts = len(sizes) + 2, 1
    for size in sizes:
        counts += counts << size * bits
    distance = abs(sum(whole)) // unit
    tail = (counts >> (sum(sizes) + distance) // 2 * bits) % ((1 << bits) - 1)  # sum of its digits
    return min(1.0, 2 * tail / (1 << len(sizes)))


def t_p_value(t: float, freedom: float) -> float:
    """The two-sided p-value of Student's t, to 1e-6; `freedom` is at least 1."""
    low, high = 0.0, 1.0
    while not isclose(low, high, abs_tol=1e-7):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t(middle, freedom) < t else (low, middle)
    return 1 - low


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, adjusted so that the chance of any false finding stays below the
    level (Holm, 1979): the smallest times n, the next times n-1, none below the one before.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
