"""What a benchmark's samples say about a model: pass@k and its interval. Standard library only.

Counts are `(samples, passed)` of one task each. Tasks are the draws from the population of tasks;
the samples of one task are not independent of one another, so every spread here is the spread
between tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, cos, exp, inf, lgamma, pi, sqrt, tan
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
    drawn: `score_interval` of the counts. With one sample a task it is Wilson's (1927).

    Raises ValueError without tasks, or where a task has no samples.
    """
    mean = mean_pass_at_k(counts, 1)
    rates = [passed / samples for samples, passed in counts]
    between = variance(rates) if len(rates) > 1 else 0.0
    floor = fmean(1 / samples for samples, _ in counts)
    return score_interval(mean, between, len(counts), floor, confidence)


def score_interval(
    mean: float, between: float, tasks: int, floor: float, confidence: float = 0.95
) -> Interval:
    """Wilson's interval with the number of tasks n replaced by the effective number n / d, as
    Franco, Little, Louis and Slud recommend for clustered draws (2019, PMC6690503).

    The design effect d is the variance `between` tasks over the estimated p(1-p): at least `floor`,
    the mean of 1 / samples (a sample tells as much as a task), and at most 1 (more samples of a
    task tell nothing new). Where nearly all completions pass or fail, n p(1-p) is small: then tasks
    of the other kind may exist that none of these shows, so d moves to 1 by exp(-1.1 n p(1-p));
    1.1 is fitted (`bench.intervals`). The less d is known from p alone, the more Student's t
    replaces z: (n-1) / (1-d) degrees of freedom.
    """
    spread = mean * (1 - mean)
    effect = min(1.0, max(floor, between / (spread + between / tasks) if between else 0.0))
    effect += (1 - effect) * (exp(-1.1 * tasks * spread) if tasks > 1 else 1)
    z = student_t(confidence, (tasks - 1) / (1 - effect) if effect < 1 else inf)
    effective = tasks / effect
    shrink = 1 + z * z / effective
    centre = (mean + z * z / (2 * effective)) / shrink
    half = z / shrink * sqrt(spread / effective + (z / (2 * effective)) ** 2)
    return Interval(low=max(0.0, centre - half), high=min(1.0, centre + half))


@lru_cache
def student_t(confidence: float, freedom: float) -> float:
    """How many standard errors hold a share `confidence` in (0, 1) of Student's t distribution.

    With t = sqrt(v) tan(a) that share is proportional to the integral of cos^(v-1) from 0 to a,
    which is concave: Newton's steps from 0 rise to the solution. `freedom` v may be any number from
    1; from 100,000 on, infinity included, it is the normal distribution.
    """
    if freedom >= 1e5:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    whole = exp(lgamma(freedom / 2) - lgamma((freedom + 1) / 2)) * sqrt(pi) / 2
    angle, step = 0.0, 1.0
    while step > 1e-12:
        points = [cos(angle * k / 40) ** (freedom - 1) for k in range(41)]  # Simpson's rule
        inner = points[0] + points[-1] + 4 * sum(points[1::2]) + 2 * sum(points[2:-1:2])
        step = (confidence * whole - angle / 120 * inner) / points[-1]
        angle += step
    return sqrt(freedom) * tan(angle)
