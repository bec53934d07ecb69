"""Rollouts to samples for the learner, and to the numbers of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from assay.types import Metrics, Rollout, Sample


def to_samples(groups: Sequence[Sequence[Rollout]], limit: int = 0) -> list[Sample]:
    """One sample per turn of each scored rollout; those that the machine failed are left out.

    `limit` is the length in tokens at which completions were cut off.
    """
    return [
        _sample(rollout, turn, f"{place}/{rollout.task.id}", limit)
        for place, group in enumerate(groups)
        for rollout in group
        if rollout.score is not None
        for turn in range(len(rollout.turns))
    ]


def _sample(rollout: Rollout, number: int, group: str, limit: int) -> Sample:
    turn = rollout.turns[number]
    completion = turn.completion
    asked = len(turn.prompt_tokens)
    return Sample(
        tokens=turn.prompt_tokens + completion.tokens,
        mask=(False,) * asked + (True,) * len(completion.tokens),
        logprobs=(0.0,) * asked + completion.logprobs,
        reward=rollout.score.total if rollout.score else 0.0,
        passed=rollout.passed,
        truncated=completion.ended == "length",
        limit=limit,
        group=group,
        version=completion.version,
    )


def mixed(group: Sequence[Rollout]) -> bool:
    """Whether the group's rewards differ, so that its members can be compared."""
    return len({rollout.score.total for rollout in group if rollout.score is not None}) > 1


def describe(groups: Sequence[Sequence[Rollout]]) -> Metrics:
    """Rewards with their parts, pass rate, lengths, verdicts and the machine's failures of one step."""
    everything = list(chain.from_iterable(groups))
    scored = [rollout for rollout in everything if rollout.score is not None]
    metrics: Metrics = {"rollout/failed": float(len(everything) - len(scored))}
    if not scored:
        return metrics
    count = len(scored)
    parts: Counter[str] = Counter()
    for rollout in scored:
        assert rollout.score is not None
        parts.update({f"reward/{name}": value for name, value in rollout.score.parts.items()})
        parts["reward/mean"] += rollout.score.total  # type: ignore[assignment]
    metrics |= {name: value / count for name, value in parts.items()}
    metrics["reward/pass_rate"] = sum(rollout.passed for rollout in scored) / count
    metrics["rollout/length"] = sum(rollout.length for rollout in scored) / count
    metrics["rollout/truncated"] = sum(r.turns[-1].completion.ended == "length" for r in scored) / count
    metrics["rollout/groups_used"] = sum(map(mixed, groups)) / len(groups)
    verdicts = Counter(rollout.turns[-1].execution.verdict for rollout in scored)
    return metrics | {f"verdict/{verdict}": number / count for verdict, number in verdicts.items()}
