"""The stream of groups: how far it runs ahead, what it waits for, and how it ends. Groups are plain
coroutines.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from assay.rollout.stream import FinishedGroup, GroupStream
from assay.train.task_order import draw
from assay.types import Rollout


class Writing:
    """Groups that end when they are let, and remember what became of them."""

    def __init__(self, *slow: int) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.gates: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.slow = set(slow)

    async def begin(self, number: int) -> list[Rollout]:
        self.begun.append(number)
        try:
            await (self.gates[number].wait() if number in self.slow else asyncio.sleep(0))
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return []

    def stream(self, *, per_step: int, max_staleness: int, prefetch: int) -> GroupStream:
        return GroupStream(
            self.begin, per_step=per_step, max_staleness=max_staleness, prefetch=prefetch
        )


def numbers(groups: list[FinishedGroup]) -> list[int]:
    return [group.number for group in groups]


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run `test`, which leaves no task behind."""

    async def watched() -> None:
        async with asyncio.timeout(20):
            await test
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())


async def idle() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_without_lag_a_step_takes_exactly_what_it_began_in_order_however_they_end() -> None:
    async def test() -> None:
        writing = Writing(0, 3)
        stream = writing.stream(per_step=3, max_staleness=0, prefetch=0)
        for step in range(2):
            await stream.publish(step)
            taking = asyncio.create_task(stream.take(3))
            await idle()
            assert writing.begun == list(range(3 * step + 3))
            assert not taking.done()
            writing.gates[3 * step].set()
            taken = await taking
            assert [(group.number, group.start_version) for group in taken] == [
                (3 * step + n, step) for n in range(3)
            ]
            assert stream.position == {"next": 3 * step + 3, "open": []}

    run(test())


def test_no_more_groups_are_begun_than_a_step_takes_and_may_be_ahead() -> None:
    async def test() -> None:
        writing = Writing()
        stream = writing.stream(per_step=2, max_staleness=2, prefetch=3)
        for step in range(5):
            await stream.publish(step)
            assert numbers(await stream.take(2)) == [2 * step, 2 * step + 1]
            await idle()
            assert len(writing.begun) == 2 * (step + 1) + 3

    run(test())


def test_a_step_waits_for_the_groups_that_no_later_step_could_take_in_time() -> None:
    async def test() -> None:
        writing = Writing(0, 1)
        stream = writing.stream(per_step=2, max_staleness=2, prefetch=4)
        for step, expected in ((0, [2, 3]), (1, [4, 5])):
            await stream.publish(step)
            assert numbers(await stream.take(2)) == expected, "0 and 1 may come later"
        await stream.publish(2)
        taking = asyncio.create_task(stream.take(2))
        await idle()
        assert not taking.done(), "they started at version 0, and this is the last step for them"
        writing.gates[0].set()
        await idle()
        assert not taking.done()
        writing.gates[1].set()
        assert [(one.number, one.start_version) for one in await taking] == [(0, 0), (1, 0)]
        assert writing.cancelled == []
        await stream.close()

    run(test())


def test_no_more_groups_start_than_can_be_learned_from_in_time() -> None:
    async def test() -> None:
        writing = Writing()
        stream = writing.stream(per_step=2, max_staleness=1, prefetch=99)
        for step in range(4):
            await stream.publish(step)
            taken = await stream.take(2)
            assert all(step - one.start_version <= 1 for one in taken)
            await idle()
            assert len(writing.begun) == 2 * (step + 1) + 2

    run(test())


@pytest.mark.parametrize("max_staleness", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_however_long_groups_take_each_is_taken_once_and_none_too_late(
    max_staleness: int, seed: int
) -> None:
    draw = random.Random(seed)

    async def begin(number: int) -> list[Rollout]:
        for _ in range(int(draw.paretovariate(0.5)) % 400):
            await asyncio.sleep(0)
        return []

    async def test() -> None:
        prefetch = draw.randint(1, 4 * max_staleness)
        stream = GroupStream(begin, per_step=4, max_staleness=max_staleness, prefetch=prefetch)
        taken: list[int] = []
        for step in range(25):
            await stream.publish(step)
            for one in await stream.take(4):
                assert step - one.start_version <= max_staleness
                taken.append(one.number)
            for _ in range(draw.randint(0, 60)):
                await asyncio.sleep(0)
        position: Any = stream.position
        assert sorted([*taken, *position["open"]]) == list(range(position["next"]))
        await stream.close()

    run(test())


def test_a_straggler_is_carried_on_into_the_next_step() -> None:
    async def test() -> None:
        writing = Writing(1)
        stream = writing.stream(per_step=2, max_staleness=1, prefetch=1)
        assert numbers(await stream.take(2)) == [0, 2]
        await stream.publish(1)
        writing.gates[1].set()
        taken = await stream.take(2)
        assert [(group.number, group.start_version) for group in taken] == [(1, 0), (3, 1)]
        await stream.close()

    run(test())


def test_of_what_has_ended_the_oldest_is_taken_first() -> None:
    async def test() -> None:
        writing = Writing(0)
        stream = writing.stream(per_step=1, max_staleness=3, prefetch=3)
        assert numbers(await stream.take(1)) == [1]
        await idle()
        stream._collect()  # 2 and 3 have ended, and 0 ends after them
        writing.gates[0].set()
        await idle()
        await stream.publish(1)
        assert numbers(await stream.take(1)) == [0]
        await stream.close()

    run(test())


def test_what_a_group_raises_is_raised_by_take_and_closing_ends_the_others() -> None:
    async def test() -> None:
        writing = Writing(0, 2)

        async def begin(number: int) -> list[Rollout]:
            if number == 1:
                raise ValueError("no words")
            return await writing.begin(number)

        stream = GroupStream(begin, per_step=2, max_staleness=2, prefetch=3)
        with pytest.raises(ValueError, match="no words"):
            await stream.take(2)
        await stream.close()
        assert writing.cancelled == [0, 2]

    run(test())


def test_what_a_group_raised_while_the_policy_learned_is_raised_before_the_next_step() -> None:
    async def test() -> None:
        writing = Writing(1)

        async def begin(number: int) -> list[Rollout]:
            await writing.begin(number)
            if number == 1:
                raise ValueError("no words")
            return []

        stream = GroupStream(begin, per_step=1, max_staleness=1, prefetch=1)
        await stream.take(1)
        writing.gates[1].set()
        await idle()
        with pytest.raises(ValueError, match="no words"):
            await stream.publish(2)
        assert stream.position == {"next": 2, "open": [1]}, "a checkpoint begins it again"
        await stream.close()

    run(test())


@pytest.mark.parametrize(("max_staleness", "prefetch"), [(0, 0), (1, 3), (2, 6)])
def test_a_stream_that_is_cut_off_anywhere_goes_on_without_losing_or_repeating_a_group(
    max_staleness: int, prefetch: int
) -> None:
    async def test() -> None:
        position: Any = {"next": 0, "open": []}
        taken: list[int] = []
        for step in range(6):
            writing = Writing(*(number for number in range(100) if number % 7 == step))
            stream = writing.stream(per_step=3, max_staleness=max_staleness, prefetch=prefetch)
            stream.resume(**json.loads(json.dumps(position)))
            await stream.publish(step)
            for gate in writing.slow:
                if not prefetch:
                    writing.gates[gate].set()
            taken += numbers(await stream.take(3))
            position = stream.position
            assert not set(position["open"]) & set(taken)
            await stream.close()
        assert len(set(taken)) == 18
        assert sorted([*taken, *position["open"]]) == list(range(position["next"]))
        assert position["next"] == 18 + prefetch

    run(test())


@pytest.mark.parametrize("seed", range(6))
def test_over_whole_epochs_with_kills_each_task_is_learned_from_once_an_epoch(seed: int) -> None:
    """Each life of the run has its own staleness, prefetching and slow tasks."""
    random_numbers, tasks, epochs = random.Random(seed), list(range(17)), 4

    async def begin(number: int) -> list[Rollout]:
        for _ in range(int(random_numbers.paretovariate(0.7)) % 200):
            await asyncio.sleep(0)
        return []

    async def test() -> None:
        position: Any = {"next": 0, "open": []}
        taken: list[int] = []
        step = 0
        while min(set(range(len(taken) + 1)) - set(taken)) < epochs * len(tasks):
            staleness = random_numbers.randint(0, 3)
            prefetch = random_numbers.randint(0, 3 * staleness) if staleness else 0
            stream = GroupStream(begin, per_step=3, max_staleness=staleness, prefetch=prefetch)
            stream.resume(**json.loads(json.dumps(position)))
            for _ in range(random_numbers.randint(1, 6)):
                await stream.publish(step)
                taken += numbers(await stream.take(3))
                position, step = stream.position, step + 1
            await stream.close()
        asked = [divmod(number, len(tasks)) for number in taken]
        names = [(epoch, draw(tasks, 1, number, 7)[0])
                 for (epoch, _), number in zip(asked, taken, strict=True)]  # fmt: skip
        assert len(set(names)) == len(names)
        whole = [name for name in names if name[0] < epochs]
        assert sorted(whole) == [(epoch, task) for epoch in range(epochs) for task in tasks]

    run(test())


def test_what_was_open_is_begun_again_first_of_all() -> None:
    async def test() -> None:
        writing = Writing()
        stream = writing.stream(per_step=1, max_staleness=2, prefetch=2)
        stream.resume(next=9, open=[4, 7])
        assert stream.position == {"next": 9, "open": [4, 7]}
        assert numbers(await stream.take(1)) == [4]
        assert writing.begun[:3] == [4, 7, 9]
        assert stream.position == {"next": 10, "open": [7, 9]}
        await stream.close()

    run(test())
