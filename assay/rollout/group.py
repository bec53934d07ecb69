"""Groups of rollouts: every completion goes to the judge the moment it ends, while others are still being written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from assay.maths.seeds import derive
from assay.rollout.attempt import Means, Prompted, attempt
from assay.types import Rollout


async def group(asked: Prompted, count: int, means: Means, seed: int) -> list[Rollout]:
    """`count` judged rollouts of one task.

    Raises what the engine, the judge, the environment or the reward raised first; what runs is cancelled then.
    """
    try:
        async with asyncio.TaskGroup() as running:
            members = [running.create_task(attempt(asked, means, derive(seed, n))) for n in range(count)]
    except BaseExceptionGroup as raised:
        raise _first(raised) from None
    return [member.result() for member in members]


async def collect(asked: Sequence[Prompted], count: int, means: Means, seed: int) -> list[list[Rollout]]:
    """A group for each of the tasks, in their order. Raises as `group` does."""
    try:
        async with asyncio.TaskGroup() as running:
            groups = [running.create_task(group(one, count, means, derive(seed, n))) for n, one in enumerate(asked)]
    except BaseExceptionGroup as raised:
        raise _first(raised) from None
    return [made.result() for made in groups]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
