"""What a benchmark's samples say about a model: pass@k and its interval. Standard library only.

Counts are `(samples, passed)` of one task each. Tasks are the draws from the population of tasks;
the samples of one task are not independent of one another, so every spread here is the spread
between tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist, fmean, variance


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that at least one of `k` samples passes, unbiased: 1 - C(n-c, k) / C(n, k).

    Chen et al., arXiv:2107.03374, equation 1, in exact integers. Raises ValueError unless 0 <=
    passed <= samples and 1 <= k <= samples.
    """
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {samples} samples, {passed} passed")
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """The mean of `pass_at_k` over tasks.

    Raises ValueError without tasks, or where a task has fewer than `k` samples.
    """
    if not counts:
        raise ValueError("pass@k of no tasks")
    return fmean(pass_at_k(samples, passed, k) for samples, passed in counts)


def pass_interval(counts: Sequence[tuple[int, int]], confidence: float = 0.95) -> Interval:
    """The interval of pass@1, the mean over tasks of passed / samples, were other tasks like these
    drawn.

    Wilson's (1927) interval with the number of tasks n replaced by the effective number n / d, as
    Franco, Little, Louis and Slud recommend for clustered draws (2019, PMC6690503). The design
    effect d is the variance between tasks over the estimated p(1-p): at least the mean of 1 /
    samples (a sample tells as much as a task), at most 1 (more samples of a task tell nothing new),
    and 1 where nothing varies. With one sample a task d is 1: Wilson's own.

    Raises ValueError without tasks, or where a task has no samples.
    """
    mean = mean_pass_at_k(counts, 1)
    tasks = len(counts)
    effective = tasks / _design_effect(counts, mean)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z * z / effective
    centre = (mean + z * z / (2 * effective)) / shrink
    half = z / shrink * sqrt(mean * (1 - mean) / effective + (z / (2 * effective)) ** 2)
    return Interval(low=max(0.0, centre - half), high=min(1.0, centre + half))


def _design_effect(counts: Sequence[tuple[int, int]], mean: float) -> float:
    if len(counts) < 2 or not 0 < mean < 1:
        return 1.0
    between = variance(passed / samples for samples, passed in counts)
    spread = mean * (1 - mean) + between / len(counts)
    return max(between / spread, fmean(1 / samples for samples, _ in counts))
