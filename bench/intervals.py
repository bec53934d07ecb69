"""Whether the intervals hold what they promise, by simulation with known pass probabilities.

    python -m bench.intervals

1. How often the interval of pass@1 holds the truth, for each shape of pass probabilities, number of
   tasks and of samples a task.
2. How often `assay compare` finds a difference where there is none, and how often its interval
   holds the true difference.
3. How often it finds a difference that is there: the power curve.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.maths.comparison import paired_difference
from assay.maths.estimates import score_interval

Rates = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Rates]
Setting = tuple[int, int]
"""Tasks, and samples of each."""
TASKS, SAMPLES = (5, 20, 164, 500), (1, 4, 16)


def near_0_or_1(solvable: float) -> Draw:
    """Tasks that nearly always pass, a share `solvable`, and tasks that nearly never do."""
    return lambda random, shape: np.where(random.random(shape) < solvable, 0.98, 0.02)


def beta(a: float, b: float) -> Draw:
    return lambda random, shape: random.beta(a, b, shape)


def mixture(random: np.random.Generator, shape: tuple[int, int]) -> Rates:
    """Three in ten tasks are easy, the others hard."""
    return np.where(
        random.random(shape) < 0.3, random.beta(8, 2, shape), beta(0.3, 6)(random, shape)
    )


SHAPES: dict[str, tuple[float, Draw]] = {
    "0.02 or 0.98, half each": (0.5, near_0_or_1(0.5)),
    "0.02 or 0.98, 15 % solvable": (0.02 + 0.15 * 0.96, near_0_or_1(0.15)),
    "beta(0.3, 0.3)": (0.5, beta(0.3, 0.3)),
    "beta(2, 2)": (0.5, beta(2, 2)),
    "beta(0.5, 2)": (0.2, beta(0.5, 2)),
    "30 % beta(8, 2), 70 % beta(0.3, 6)": (0.3 * 0.8 + 0.7 / 21, mixture),
}
"""The true pass@1 and the pass probabilities of tasks."""
POWER = "beta(0.5, 2)"
"""The shape of the power curve."""


def coverage(shape: str, tasks: int, samples: int, runs: int) -> float:
    """The share of `runs` simulated evaluations whose interval of pass@1 holds the truth."""
    random, (truth, draw) = np.random.default_rng(0), SHAPES[shape]
    rates = random.binomial(samples, draw(random, (runs, tasks))) / samples
    means, between = rates.mean(1), rates.var(1, ddof=1)
    intervals = [
        score_interval(float(mean), float(spread), tasks, 1 / samples)
        for mean, spread in zip(means, between, strict=True)
    ]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / runs


def compared(
    shape: str, gain: float, tasks: int, samples: int, runs: int
) -> tuple[float, float]:  # fmt: skip
    """The share of simulated comparisons with p of at most 5 %, and of intervals that hold the true
    difference. The second model solves a share `gain` of what the first one fails.
    """
    random, (mean, draw) = np.random.default_rng(1), SHAPES[shape]
    truth, before = gain * (1 - mean), draw(random, (runs, tasks))
    chances = before, before + gain * (1 - before)
    first, second = (random.binomial(samples, chance) / samples for chance in chances)
    results = [
        paired_difference(rates.tolist(), other.tolist(), samples)
        for rates, other in zip(first, second, strict=True)
    ]
    covered = sum(result.interval.low <= truth <= result.interval.high for result in results)
    return sum(result.p_value <= 0.05 for result in results) / runs, covered / runs


def show(
    title: str, columns: list[Setting], cell: Callable[[str, Setting], str], rows: Sequence[str]
) -> None:
    """Print a table in Markdown, row by row."""
    heads = [f"{tasks} x {samples}" for tasks, samples in columns]
    print(f"\n| {title} | {' | '.join(heads)} |\n| --- |{' ---: |' * len(columns)}")
    for row in rows:
        print(f"| {row} | {' | '.join(cell(row, column) for column in columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10000, help="simulations of each setting")
    runs, start = parser.parse_args().runs, time.process_time()
    settings = [(tasks, samples) for tasks in TASKS for samples in SAMPLES]

    def covered(shape: str, setting: Setting) -> str:
        return f"{100 * coverage(shape, *setting, runs):.1f}"

    def false(shape: str, setting: Setting) -> str:
        share, cover = compared(shape, 0.0, *setting, runs)
        return f"{100 * share:.1f}; {100 * cover:.1f}"

    def power(difference: str, setting: Setting) -> str:
        share, cover = compared(POWER, float(difference) / (1 - SHAPES[POWER][0]), *setting, runs)
        return f"{100 * share:.0f}; {100 * cover:.1f}"

    show("pass@1 covered, %", settings, covered, list(SHAPES))
    cheap = [setting for setting in settings if setting != (500, 16)]
    show("found; covered with no difference, %", cheap, false, list(SHAPES)[::2])
    fewer = [setting for setting in settings if setting[0] == 20 or setting[0] * setting[1] < 1000]
    show("found; covered with this difference, %", fewer, power, ("0.03", "0.06", "0.12", "0.24"))
    print(f"\nCPU seconds: {time.process_time() - start:.0f}")


if __name__ == "__main__":
    main()
