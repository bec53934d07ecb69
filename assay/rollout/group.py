"""Groups of rollouts. Each completion is judged when the engine returns it, while others are still
being generated; the whole group is scored at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.maths.seeds import derive
from assay.rollout.attempt import PromptedTask, RolloutContext, attempt
from assay.rollout.held_out import with_held_out
from assay.sync import together
from assay.types import Rollout


async def group(
    prompted_task: PromptedTask, count: int, context: RolloutContext, seed: int
) -> list[Rollout]:
    """`count` judged and scored rollouts of one task; then the checks held out of the reward are
    judged. Raises as `together` and `score` do.
    """
    attempts = (attempt(prompted_task, context, derive(seed, n)) for n in range(count))
    scored = await score(await together(attempts), context)
    return await together(with_held_out(rollout, context) for rollout in scored)


async def score(rollouts: Sequence[Rollout], context: RolloutContext) -> list[Rollout]:
    """The rollouts with their scores, all from one batch.

    Where turns are scored, the batch holds each judged turn with those before it, and the last
    score is the rollout's. Raises as the reward does.
    """
    if not context.scores_turns:
        return await context.reward(rollouts)
    parts = [
        replace(rollout, turns=rollout.turns[:n])
        for rollout in rollouts
        for n, turn in enumerate(rollout.turns, 1)
        if turn.execution
    ]
    scored = iter(await context.reward(parts))
    return [_with_turn_scores(rollout, scored) for rollout in rollouts]


def _with_turn_scores(rollout: Rollout, scored: Iterator[Rollout]) -> Rollout:
    """The rollout with the scores of its judged turns, or with its first failure."""
    parts = {n: next(scored) for n, turn in enumerate(rollout.turns) if turn.execution}
    for part in (rollout, *parts.values()):
        if part.failure is not None:
            return replace(rollout, failure=part.failure, cause=part.cause)
    scores = [parts[n].score if n in parts else None for n in range(len(rollout.turns))]
    turns = [replace(turn, score=score) for turn, score in zip(rollout.turns, scores, strict=True)]
    return replace(rollout, turns=tuple(turns), score=scores[-1])
