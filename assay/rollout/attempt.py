"""One attempt at a task: a completion is cut to a program, judged and scored."""

from __future__ import annotations

from collections.abc import Callable

from assay import extract
from assay.judge import Job, Judge
from assay.types import Completion, Rollout, Score, Task, Turn, Verdict

RewardFunction = Callable[[Rollout], Score]


async def attempt(
    task: Task, prompt: tuple[int, ...], completion: Completion, judge: Judge, reward: RewardFunction
) -> Rollout:
    """The rollout of one completion. A machine's failure is a rollout with `failure` and no score."""
    program = extract.program(task, completion.text)
    execution = await judge.run(Job(task, program))
    turn = Turn(prompt, completion, program, execution)
    if execution.verdict is Verdict.INFRA:
        return Rollout(task, (turn,), None, failure=execution.detail or "the judge failed")
    unscored = Rollout(task, (turn,), None)
    return Rollout(task, (turn,), reward(unscored))
