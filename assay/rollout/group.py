"""Groups of rollouts: every completion goes to the judge the moment it ends, while others are still being written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from assay.engines.base import Engine, Request, Sampling
from assay.errors import DataError
from assay.judge import Judge
from assay.policy.chat import Chat
from assay.rollout.attempt import RewardFunction, attempt
from assay.types import Rollout, Task


@dataclass(frozen=True, slots=True)
class Prompted:
    """A task with the tokens that ask for it, and the strings that end an answer."""

    task: Task
    prompt: tuple[int, ...]
    stop: tuple[str, ...] = ()


def ask(tasks: Sequence[Task], chat: Chat, max_tokens: int, context: int | None) -> list[Prompted]:
    """The tasks with their prompts. Raises DataError when one does not leave room for `max_tokens` in the context."""
    asked = [Prompted(task, chat.prompt(task), chat.stop(task)) for task in tasks]
    longest = max(asked, key=lambda one: len(one.prompt), default=None)
    if longest and context and len(longest.prompt) + max_tokens > context:
        raise DataError(
            f"task {longest.task.id!r} has a prompt of {len(longest.prompt)} tokens: with max_tokens = {max_tokens} "
            f"that is more than the model's context of {context}; lower max_tokens or leave the task out"
        )
    return asked


@dataclass(frozen=True, slots=True)
class Collected:
    """Groups in the order of their tasks, and what they took."""

    groups: list[list[Rollout]]
    """[tasks][count]"""
    generate_seconds: float
    """Wall time until the last completion was written."""
    judge_seconds: float
    """Wall time from there until the last verdict."""

    @property
    def rollouts(self) -> list[Rollout]:
        """All of them, group after group."""
        return [rollout for group in self.groups for rollout in group]


async def collect(
    asked: Sequence[Prompted], count: int, engine: Engine, judge: Judge, reward: RewardFunction, sampling: Sampling,
    seed: int,
) -> Collected:  # fmt: skip
    """`count` judged rollouts of each task.

    Raises what the engine, the judge or the reward raised first; what runs is cancelled then.
    """
    requests = [Request(one.prompt, count, one.stop) for one in asked]
    pending: dict[tuple[int, int], asyncio.Task[Rollout]] = {}
    start = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as running:
            async for written in engine.generate(requests, sampling, seed):
                one = asked[written.request]
                work = attempt(one.task, one.prompt, written.completion, judge, reward)
                pending[written.request, written.member] = running.create_task(work)
            generated = time.perf_counter()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    groups = [[pending[place, member].result() for member in range(count)] for place in range(len(asked))]
    return Collected(groups, generated - start, time.perf_counter() - generated)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
