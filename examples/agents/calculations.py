"""Tasks for calculator.py, a plug-in that makes them: `tasks.train = "calculations:train"`.

`talks` has the agent's conversations, for SFT. Half of them are wrong, as in real data:
reinforcement learning has something to improve.
"""

import random
from collections.abc import Iterator

from assay.tasks import require_split, task_set
from assay.types import Answer, Message, Task

COUNTS = {"train": 2000, "talks": 2000, "test": 150}
LARGEST = 50
WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}
Step = tuple[str, int]


@task_set
def calculations(split: str = "train") -> Iterator[Task]:
    """Generated calculations of two or three steps, for an agent with a calculator. Splits: train,
    talks, test.
    """
    require_split("calculations", split, COUNTS)
    draw = random.Random(2026)
    questions = list(dict.fromkeys(calculation(draw) for _ in range(2 * sum(COUNTS.values()))))
    first = sum(count for name, count in COUNTS.items() if name < split)
    for number, (start, steps) in enumerate(questions[first : first + COUNTS[split]]):
        changes = ", ".join(f"{WORDS[sign]} {by}" for sign, by in steps)
        prompt, name = f"Start at {start}, {changes}.", f"calculations/{split}/{number}"
        if split == "talks":
            yield talk(name, prompt, start, steps, draw)
        else:
            right = str(values(start, steps)[-1])
            yield Task(
                name, prompt, (Answer(right, exact=True),), "", "answer", reference=right,
                tags={"steps": str(len(steps))},
            )  # fmt: skip


def calculation(draw: random.Random) -> tuple[int, tuple[Step, ...]]:
    """A number to start at, and steps that stay from 1 to LARGEST."""
    start = value = draw.randint(2, LARGEST)
    count = draw.choice((2, 2, 2, 3))
    steps: list[Step] = []
    while len(steps) < count:
        sign = draw.choice("+-*")
        by = draw.randint(2, 9) if sign == "*" else draw.randint(2, LARGEST)
        if 1 <= (after := compute(value, sign, by)) <= LARGEST:
            value = after
            steps.append((sign, by))
    return start, tuple(steps)


def compute(a: int, sign: str, b: int) -> int:
    """What two numbers and a sign give."""
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def values(start: int, steps: tuple[Step, ...]) -> list[int]:
    """The numbers after each step."""
    numbers = [start]
    for sign, by in steps:
        numbers.append(compute(numbers[-1], sign, by))
    return numbers


def talk(name: str, prompt: str, start: int, steps: tuple[Step, ...], draw: random.Random) -> Task:
    """A conversation with the agent. One in five guesses the answer without a call, one in five
    slips in a step, and one in ten ends a step too early.
    """
    kind = draw.choices(["right", "guess", "slip", "early"], [50, 20, 20, 10])[0]
    slip = draw.randrange(len(steps)) if kind == "slip" else -1
    ends = {"guess": 0, "early": len(steps) - 1}.get(kind, len(steps))
    value, messages = start, [Message("user", prompt)]
    for at, (sign, by) in enumerate(steps[:ends]):
        if at == slip:
            sign = draw.choice([other for other in WORDS if other != sign])
        messages.append(Message("assistant", f"calc: {value} {sign} {by}"))
        value = compute(value, sign, by)
        messages.append(Message("user", f"= {value}"))
    if kind == "guess":
        value = values(start, steps)[-1] + draw.randint(-9, 9)
    return Task(
        name, messages[-1].content, (), "", "answer", messages=tuple(messages),
        demonstrations=(f"answer: {value}",),
    )  # fmt: skip
