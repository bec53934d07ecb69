"""Steps that wait for slow groups in time (admission), beside steps that drop what is too old.

    python -m bench.admission [--seeds 3]

Steps an hour and tasks that are never trained on, on a clock of its own. An engine of 256 rows
makes a token of every row in 20 ms. Steps take 16 groups of 8 completions and learn for some
seconds. The length of a completion is lognormal (sigma 0.6) around that of its task, which is
lognormal too (median 200 tokens, sigma 0.9), up to `max_tokens`: a few tasks take many times as
long as the others. 512 tasks, three epochs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import product
from statistics import mean
from typing import Any

from assay.rollout.stream import GroupStream
from assay.types import Rollout

TASKS, PER_STEP, GROUP, ROWS, TOKEN = 512, 16, 8, 256, 0.02


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes at once when nothing runs."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = selectors.DefaultSelector()
        select = selector.select

        def skip(timeout: float | None = None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        selector.select = skip  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since the start."""
        return self.now


class Dropping(GroupStream):
    """The rule before: a step takes what ends first, and what is too old then is dropped."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.dropped: list[int] = []

    async def publish(self, version: int) -> None:
        """Drop what started too early."""
        self._collect()
        self.version = version
        oldest = version - self.max_staleness
        old = {task: number for task, (number, start) in self._running.items() if start < oldest}
        for task in old:
            self._running.pop(task)
            task.cancel()
        stale = [group for group in self._finished if group.start_version < oldest]
        self._finished = [group for group in self._finished if group.start_version >= oldest]
        self.dropped += [*old.values(), *(group.number for group in stale)]

    def _waits_for_late_groups(self) -> bool:
        return False


def lengths(number: int, seed: int, longest: int) -> list[int]:
    """Tokens of the completions of a group: those of the same task are alike in every epoch."""
    epoch, place = divmod(number, TASKS)
    order = random.Random(f"{seed} {epoch}").sample(range(TASKS), TASKS)
    task = 200 * random.Random(f"{seed} task {order[place]}").lognormvariate(0, 0.9)
    draw = random.Random(f"{seed} group {number}")
    return [min(longest, round(task * draw.lognormvariate(0, 0.6))) for _ in range(GROUP)]


def task_of(number: int, seed: int) -> int:
    epoch, place = divmod(number, TASKS)
    return random.Random(f"{seed} {epoch}").sample(range(TASKS), TASKS)[place]


async def train(
    kind: Callable[..., GroupStream],
    longest: int,
    staleness: int,
    learning: float,
    seed: int,
    steps: int,
) -> tuple[float, int, float]:
    """Steps an hour, tasks never trained on, and the mean staleness of groups by tokens."""
    rows = asyncio.Semaphore(ROWS)

    async def write(tokens: int) -> None:
        async with rows:
            await asyncio.sleep(tokens * TOKEN)

    async def group(number: int) -> list[Rollout]:
        await asyncio.gather(*(write(tokens) for tokens in lengths(number, seed, longest)))
        return []

    prefetch = staleness * PER_STEP
    stream = kind(group, per_step=PER_STEP, max_staleness=staleness, prefetch=prefetch)
    trained: Counter[int] = Counter()
    weights, old = 0, 0.0
    for step in range(steps):
        await stream.publish(step)
        for rollouts in await stream.take(PER_STEP):
            assert step - rollouts.start_version <= staleness
            trained[task_of(rollouts.number, seed)] += 1
            tokens = sum(lengths(rollouts.number, seed, longest))
            weights, old = weights + tokens, old + tokens * (step - rollouts.start_version)
        await asyncio.sleep(learning)
    took = asyncio.get_running_loop().time()
    open_tasks = {task_of(int(n), seed) for n in stream.position["open"]}  # type: ignore[union-attr]
    started = {task_of(number, seed) for number in range(int(stream.next))}
    await stream.close()
    never = started - set(trained) - open_tasks
    return 3600 * steps / took, len(never), old / weights


def on_clock(work: Coroutine[Any, Any, Any]) -> Any:
    """What it gives, on a clock of its own."""
    loop = Clock()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0)
    arguments = parser.parse_args()
    seeds, steps = range(arguments.seeds), round(TASKS * arguments.epochs / PER_STEP)
    heads = (
        "max_tokens", "staleness", "seconds of learning", "steps an hour", "never trained on",
        "staleness by tokens",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
    for longest, learning, staleness in product((1024, 2048), (10.0, 40.0), (1, 2, 3, 4)):
        case = longest, staleness, learning
        pairs = [
            [on_clock(train(kind, *case, seed, steps)) for kind in (GroupStream, Dropping)]
            for seed in seeds
        ]
        ratios = [ours[0] / theirs[0] for ours, theirs in pairs]
        ours, theirs = zip(*pairs, strict=True)
        never = (mean(outcome[1] for outcome in side) for side in (ours, theirs))
        stale = (mean(outcome[2] for outcome in side) for side in (ours, theirs))
        print(
            f"| {longest} | {staleness} | {learning:g} | {mean(ratios):.2f} times"
            f" ({min(ratios):.2f} to {max(ratios):.2f}) | {'; '.join(f'{n:.1f}' for n in never)} |"
            f" {'; '.join(f'{n:.2f}' for n in stale)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
