"""Groups of rollouts. Each completion is judged as soon as it ends, while others are still being
generated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

from assay.maths.seeds import derive
from assay.rollout.attempt import PromptedTask, RolloutContext, attempt
from assay.types import Rollout

T = TypeVar("T")


async def group(
    prompted_task: PromptedTask, count: int, context: RolloutContext, seed: int
) -> list[Rollout]:
    """`count` judged rollouts of one task. Raises as `together` does."""
    return await together(attempt(prompted_task, context, derive(seed, n)) for n in range(count))


async def together(calls: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all calls at once and return their results in order.

    When one call raises, the others are cancelled, and that exception is raised as it is.
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
