"""Groups of rollouts: every completion goes to the judge the moment it ends, while others are still
being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import TypeVar

from assay.maths.seeds import derive
from assay.rollout.attempt import Means, Prompted, attempt
from assay.types import Rollout

T = TypeVar("T")


async def group(asked: Prompted, count: int, means: Means, seed: int) -> list[Rollout]:
    """`count` judged rollouts of one task. Raises as `together` does."""
    return await together(attempt(asked, means, derive(seed, n)) for n in range(count))


async def collect(
    asked: Sequence[Prompted], count: int, means: Means, seed: int
) -> list[list[Rollout]]:
    """A group for each of the tasks, in their order. Raises as `together` does."""
    return await together(group(one, count, means, derive(seed, n)) for n, one in enumerate(asked))


async def together(calls: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """What each comes to, in their order. Raises what one of them raised first; the others are
    cancelled then.
    """
    try:
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(call) for call in calls]
    except BaseExceptionGroup as raised:
        raise _first(raised) from None
    return [task.result() for task in tasks]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
