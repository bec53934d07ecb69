"""Generated sums of a few steps, reasoned in tags: the questions that need no download. As in real
data, some demonstrations slip in a step and go on from there: reinforcement learning has something
to improve.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from assay.tasks import require_split, task_set
from assay.tasks.maths import question
from assay.types import Answer, Task

SEED = 2026
COUNTS = {"train": 1500, "test": 150}
LARGEST = 20
"""No number in between is larger, or below 0."""
STEPS = (2, 3)
SLIPS = 0.4
"""The share of demonstrations with one wrong step."""
DEMONSTRATIONS = 2
Step = tuple[str, int]
WORDS = {"+": "add {}", "-": "subtract {}"}


@task_set
def arithmetic(split: str = "train") -> Iterator[Task]:
    """Generated sums of two or three steps, with reasoning in tags. Splits: train, test."""
    require_split("arithmetic", split, COUNTS)
    draw = random.Random(SEED)
    sums = dict.fromkeys(_sum(draw) for _ in range(2 * sum(COUNTS.values())))
    first = COUNTS["train"] if split == "test" else 0
    for n, (start, steps) in enumerate(list(sums)[first : first + COUNTS[split]]):
        changes = ", ".join(WORDS[sign].format(number) for sign, number in steps)
        right = Answer(str(_values(start, steps)[-1]), exact=True)
        replies = [_reply(start, steps, draw) for _ in range(DEMONSTRATIONS)]
        yield question(f"arithmetic/{split}/{n}", f"Start at {start}, {changes}.", right, *replies)


def _sum(draw: random.Random) -> tuple[int, tuple[Step, ...]]:
    """A number to start at, and steps that stay from 0 to LARGEST."""
    start = value = draw.randint(1, 9)
    steps: list[Step] = []
    while len(steps) < STEPS[0] or (len(steps) < STEPS[1] and draw.random() < 0.5):
        step = draw.choice("+-"), draw.randint(1, 5)
        after = _after(value, step)
        if 0 <= after <= LARGEST:
            value = after
            steps.append(step)
    return start, tuple(steps)


def _after(value: int, step: Step) -> int:
    sign, number = step
    return value + number if sign == "+" else value - number


def _values(start: int, steps: tuple[Step, ...], slip: int = -1, by: int = 0) -> list[int]:
    """The numbers after each step; the step `slip` is wrong `by` so much."""
    values = [start]
    for at, step in enumerate(steps):
        values.append(abs(_after(values[-1], step) + (by if at == slip else 0)))
    return values


def _reply(start: int, steps: tuple[Step, ...], draw: random.Random) -> str:
    slip = draw.randrange(len(steps)) if draw.random() < SLIPS else -1
    values = _values(start, steps, slip, draw.choice([-2, -1, 1, 2]))
    chain = "".join(
        f" {sign} {number} = {after}"
        for (sign, number), after in zip(steps, values[1:], strict=True)
    )
    return f"<think> {start}{chain}</think><answer> {values[-1]}</answer>"
