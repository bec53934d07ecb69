"""Turns rollouts into samples for the learner, and into metrics of a step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain, zip_longest
from statistics import fmean, pstdev

from assay.maths.rewards import have_zero_variance
from assay.types import UNJUDGED_CAUSES, Metrics, Rollout, Sample, Turn, Verdict

TURN_DISCOUNT = 0.4
"""How much of the next turn's return counts for the turn before it (gamma, arXiv:2507.11948)."""


def to_samples(groups: Sequence[Sequence[Rollout]], limit: int = 0) -> list[Sample]:
    """Samples of all rollouts that have a score; rollouts that the machine failed are left out.

    A rollout is one sample, with the mask on the tokens that the policy sampled, as long as each
    prompt starts with all tokens before it. Where a prompt differs (the chat was rendered again), a
    new sample starts.

    With scored turns, each turn is a sample. Its reward is the largest of its own score and the
    scores of later turns, discounted by TURN_DISCOUNT per turn (after arXiv:2507.11948, whose sum
    would reward a wrong first answer). Turns are compared with the same turn of other rollouts,
    because a second turn exists only after a failure.

    A group without rollouts only counts in the numbers of groups. `limit` is the token limit of one
    completion; a joined sample has that of all its turns.
    """
    samples = []
    for place, group in enumerate(groups):
        for index, rollout in enumerate(group):
            name = f"{place}/{rollout.task.id}"
            if rollout.score is None:
                continue
            if any(turn.score for turn in rollout.turns):
                worth = _worth(rollout)
                new = [
                    _sample([turn], *outcome, f"{name}/{n}", limit)
                    for n, (turn, outcome) in enumerate(worth)
                ]
                firsts: Iterable[int] = range(len(new))
            else:
                parts = _joined(rollout.turns)
                most = limit * len(rollout.turns)
                whose = index if len(parts) > 1 else None
                new = [
                    _sample(part, rollout.score.total, rollout.passed, name, most, whose)
                    for part in parts
                ]
                firsts = accumulate(map(len, parts), initial=0)
            tokens = sum(len(turn.completion.tokens) for turn in rollout.turns if turn.learned)
            assert sum(sample.trained_tokens for sample in new) == tokens, name
            samples += [
                replace(sample, place=(place, index, first))
                for sample, first in zip(new, firsts, strict=False)
            ]
    return samples


def _joined(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Turns in parts; within a part each prompt starts with all tokens before it."""
    parts: list[list[Turn]] = []
    for turn in turns:
        last = parts[-1][-1] if parts else None
        before = last.prompt_tokens + last.completion.tokens if last else ()
        if last and turn.prompt_tokens[: len(before)] == before:
            parts[-1].append(turn)
        else:
            parts.append([turn])
    return parts


def _worth(rollout: Rollout) -> list[tuple[Turn, tuple[float, bool]]]:
    """Each turn with its discounted return, and whether its program passed."""
    returns: list[tuple[Turn, tuple[float, bool]]] = []
    worth = 0.0
    for turn in reversed(rollout.turns):
        score = turn.score.total if turn.score else 0.0
        worth = max(score, TURN_DISCOUNT * worth) if returns else score
        passed = turn.execution is not None and turn.execution.proven
        returns.append((turn, (worth, passed)))
    return returns[::-1]


def dialogues(turns: Sequence[Turn], group: str) -> list[Sample]:
    """SFT samples of a played demonstration, with the mask on the replies to learn."""
    parts = [_sample(part, 0.0, False, group, 0) for part in _joined(turns)]
    return [replace(part, logprobs=()) for part in parts if part.trained_tokens]


def _sample(
    turns: Sequence[Turn], reward: float, passed: bool, group: str, limit: int,
    rollout: int | None = None
) -> Sample:  # fmt: skip
    tokens: tuple[int, ...] = ()
    mask: tuple[bool, ...] = ()
    logprobs: tuple[float, ...] = ()
    observed: tuple[bool, ...] = ()
    for turn in turns:
        read = turn.prompt_tokens[len(tokens) :]
        observed += (bool(tokens),) * len(read) + (False,) * len(turn.completion.tokens)
        tokens += read + turn.completion.tokens
        mask += (False,) * len(read) + (turn.learned,) * len(turn.completion.tokens)
        logprobs += (0.0,) * len(read) + turn.completion.logprobs
    return Sample(
        tokens=tokens, mask=mask, logprobs=logprobs, reward=reward, passed=passed, group=group,
        rollout=rollout, observed=observed if any(observed) else (),
        truncated=any(turn.completion.ended == "length" for turn in turns), limit=limit,
        version=min(turn.completion.version for turn in turns),
    )  # fmt: skip


def has_zero_variance(group: Sequence[Rollout]) -> bool:
    """Whether the rollouts' rewards are equal, and those of each turn: then every advantage
    relative to the group is 0.
    """
    scored = [rollout for rollout in group if rollout.score is not None]
    rewards = ([rollout.score, *(turn.score for turn in rollout.turns)] for rollout in scored)
    return all(
        have_zero_variance(score.total for score in place if score)
        for place in zip_longest(*rewards)
    )


def describe(groups: Sequence[Sequence[Rollout]]) -> Metrics:
    """Metrics of a step's rollouts, as docs/metrics.md defines them.

    Rollouts that the machine failed count in `rollout/failed` alone, those of tasks that cannot be
    judged in `rollout/unjudged`.
    """
    rollouts = list(chain.from_iterable(groups))
    scored = [(rollout, rollout.score) for rollout in rollouts if rollout.score is not None]
    unjudged = sum(rollout.cause in UNJUDGED_CAUSES for rollout in rollouts)
    failed = len(rollouts) - len(scored) - unjudged
    metrics: Metrics = {"rollout/failed": float(failed), "rollout/unjudged": float(unjudged)}
    if not scored:
        return metrics
    count, lengths = len(scored), [rollout.length for rollout, _ in scored]
    gains = [gain for group in groups if (gain := _gain_of_passing(group)) is not None]
    sampled = [
        logprob
        for rollout, _ in scored
        for turn in rollout.turns
        if turn.learned
        for logprob in turn.completion.logprobs
    ]
    totals = [score.total for _, score in scored]
    for term in dict.fromkeys(chain.from_iterable(score.parts for _, score in scored)):
        values = [score.parts.get(term, 0.0) for _, score in scored]
        metrics |= {f"reward/{term}": fmean(values), f"reward/{term}_std": pstdev(values)}
    passes = [[rollout.passed for rollout in group if rollout.score] for group in groups]
    metrics |= {
        "reward/mean": fmean(totals),
        "reward/std": pstdev(totals),
        "reward/pass_rate": sum(map(sum, passes)) / count,
        "reward/pass@k": fmean(any(group) for group in passes if group),
        "rollout/groups": float(sum(any(r.score for r in group) for group in groups)),
        "rollout/length": fmean(lengths),
        "rollout/length_min": float(min(lengths)),
        "rollout/length_max": float(max(lengths)),
        "rollout/truncated": fmean(r.turns[-1].completion.ended == "length" for r, _ in scored),
        "rollout/zero_variance_groups": fmean(map(has_zero_variance, groups)),
        "rollout/forgeable": fmean(is_forgeable(rollout) for rollout, _ in scored),
        "rollout/turns": sum(len(rollout.turns) for rollout, _ in scored) / count,
    }
    metrics |= {"reward/gain_of_passing": fmean(gains)} if gains else {}
    metrics |= {"rollout/entropy": -fmean(sampled)} if sampled else {}
    verdicts = Counter(rollout.execution.verdict for rollout, _ in scored if rollout.execution)
    return metrics | {f"verdict/{verdict}": number / count for verdict, number in verdicts.items()}


def _gain_of_passing(group: Sequence[Rollout]) -> float | None:
    """The mean reward of the rollouts of a group that pass, less that of those that fail; None
    where all pass or all fail.
    """
    rewards: dict[bool, list[float]] = {True: [], False: []}
    for rollout in group:
        if rollout.score is not None:
            rewards[rollout.passed].append(rollout.score.total)
    passes, failures = rewards[True], rewards[False]
    return fmean(passes) - fmean(failures) if passes and failures else None


def token_balance(
    groups: Sequence[Sequence[Rollout]], learnable: Sequence[Sequence[Rollout]]
) -> Metrics:
    """All tokens that were sampled for groups: those to learn, and others by the reason. A group
    that is left out is empty in `learnable`.
    """
    counts = Counter[str](learned=0, machine=0)
    pairs = ((rollout, used) for group, used in zip(groups, learnable, strict=True)
             for rollout in group)  # fmt: skip
    for rollout, used in pairs:
        lost = "unjudged" if rollout.cause in UNJUDGED_CAUSES else "machine"
        scored = "learned" if used else "zero_variance"
        counts[scored if rollout.score else lost] += rollout.length
        counts.update(rollout.unlearned)
    return {f"tokens/{name}": float(count) for name, count in counts.items()}


def is_forgeable(rollout: Rollout) -> bool:
    """Whether its last program could have forged its pass, so that it counts as none."""
    execution = rollout.execution
    return execution is not None and execution.verdict is Verdict.PASS and execution.forgeable


def staleness(groups: Sequence[Sequence[Rollout]], version: int) -> Metrics:
    """How many versions behind `version` the sampled tokens are.

    Gives the mean, the largest, and the share of tokens at each distance.
    """
    behind = Counter(
        version - sampled
        for rollout in chain.from_iterable(groups)
        for turn in rollout.turns
        for sampled in turn.completion.versions
    )
    total = behind.total()
    if not total:
        return {}
    shares = {f"staleness/{n}": count / total for n, count in sorted(behind.items())}
    return {
        "staleness/mean": sum(n * count for n, count in behind.items()) / total,
        "staleness/max": float(max(behind)),
    } | shares
