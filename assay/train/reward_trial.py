"""A trial of the user's rewards before a model is loaded: mistakes show within a second."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from assay.errors import UserError
from assay.judge.base import no_code
from assay.registry import place_of
from assay.rewards import Reward
from assay.sync import run_sync
from assay.types import Completion, Execution, Rollout, Task, Turn, Verdict


def try_rewards(reward: Reward, task: Task) -> None:
    """Score rollouts of `task` that nobody sampled with the terms that plug-ins hold: one that
    passes and one that fails, then one whose reply has no code. Terms that open something, such as
    a judge, are left out, and an async term is followed until it waits for something, such as a
    server.

    Raises UserError as the reward does.
    """
    terms = [
        replace(term, function=_until_it_waits(term.function))
        for term in reward.terms
        if place_of(term.function) and not inspect.isasyncgenfunction(term.function)
    ]
    if not terms:
        return
    right, wrong = _rollout(task, passes=True), _rollout(task, passes=False)
    run_sync(Reward(terms)([right, wrong]))
    try:
        run_sync(Reward(terms)([right, _without_code(task)]))
    except UserError as error:
        raise UserError(
            f"{error}; this was for a reply without code, whose turn.program is None, as many are"
        ) from error.__cause__  # it has the place in the plug-in


def _until_it_waits(function: Callable[..., Any]) -> Callable[..., Any]:
    """An async term that gives zeros from where it waits: what it would wait with, such as locks
    and connections, may belong to one event loop, and the run has another.
    """
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(getattr(function, "func", function))
    async def scores(rollouts: Sequence[Rollout]) -> Any:
        work = asyncio.ensure_future(function(rollouts))
        await asyncio.sleep(0)  # long enough for its first step, and for none of what it starts
        if work.done():
            return work.result()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return [0.0] * len(rollouts)

    return scores


def _without_code(task: Task) -> Rollout:
    """A rollout of one turn, whose reply is prose."""
    completion = Completion("I do not know.", (1, 2, 3), (-0.5,) * 3, "stop", (0,) * 3)
    execution = no_code(max(1, len(task.checks)))
    return Rollout(task, (Turn((1, 2, 3), completion, None, execution),), None)


def _rollout(task: Task, passes: bool) -> Rollout:
    """A rollout of one turn, with what the judge would say of its program."""
    program = task.reference or (task.demonstrations or (f"{task.stub}\n    pass\n",))[0]
    text = f"The program is:\n\n```{task.language}\n{program.rstrip()}\n```\n"
    tokens = tuple(range(1, 1 + max(1, len(text) // 4)))
    completion = Completion(
        text, tokens, (-0.5,) * len(tokens), ended="stop", versions=(0,) * len(tokens)
    )
    total = max(1, len(task.checks))
    execution = Execution(
        Verdict.PASS, passed=total, total=total, cpu_seconds=0.01, wall_seconds=0.02, memory_mb=10
    )
    if not passes:
        execution = replace(
            execution, verdict=Verdict.WRONG, passed=0, detail="AssertionError: check 1 failed"
        )
    return Rollout(task, (Turn((1, 2, 3), completion, program, execution),), None)
