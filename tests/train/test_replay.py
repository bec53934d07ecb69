"""A source with replays: what it stores of a step, and what it adds to the next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from assay.algorithms import algorithms
from assay.config.sections import ReplaySettings
from assay.rollout.samples import to_samples, token_balance
from assay.rollout.task_rates import TaskRates
from assay.train.replay import ReplaySource
from assay.train.sources import RolloutSource, Source, StepData
from assay.types import Execution, Rollout, Sample, Task, Verdict
from tests.policies import random_samples, run_settings
from tests.rollout.test_collect import rollout
from tests.train.test_learner import make

HARD, EASY = (Task(name, "", (), "") for name in ("hard", "easy"))
DPPO = algorithms["dppo"].build({"name": "dppo"})
PASS, FAIL = Verdict.PASS, Verdict.WRONG


class WrittenSource(Source):
    """Rollouts that the test has written, a list of groups for each step."""

    temperature, steps_per_epoch = 1.0, 1.0

    def __init__(self, *steps: list[list[Rollout]]) -> None:
        self.steps, self.rates = steps, TaskRates()

    async def next(self, step: int) -> StepData:
        groups = self.steps[step]
        self.rates.observe(groups)
        return StepData(to_samples(groups), token_balance(groups, groups), groups)

    def longest(self, tokens: int) -> list[Sample]:
        raise AssertionError(tokens)

    @property
    def position(self) -> dict[str, Any]:
        return {"rates": self.rates.position}

    def resume(self, position: Mapping[str, Any]) -> None:
        self.rates.resume(position["rates"])


def group(task: Task, passes: int, of: int = 8, version: int = 0, tokens: int = 4) -> list[Rollout]:
    """So many passes, which are paid 1, before the failures."""
    verdicts = [PASS] * passes + [FAIL] * (of - passes)
    written = [rollout(task, float(verdict is PASS), verdict, tokens) for verdict in verdicts]
    return [sampled_by(version, one) for one in written]


def sampled_by(version: int, one: Rollout) -> Rollout:
    (turn,) = one.turns
    versions = (version,) * turn.completion.length
    completion = replace(turn.completion, versions=versions)
    return replace(one, turns=(replace(turn, completion=completion),))


def with_execution(one: Rollout, **changes: Any) -> Rollout:
    (turn,) = one.turns
    return replace(one, turns=(replace(turn, execution=Execution(PASS, **changes)),))


def source_of(*steps: list[list[Rollout]], **settings: Any) -> ReplaySource:
    written = cast(RolloutSource, WrittenSource(*steps))
    return ReplaySource(written, ReplaySettings(**{"share": 0.1, **settings}))


def play(source: ReplaySource, first: int = 0, count: int | None = None) -> list[StepData]:
    """The steps of the source, each learned from by dppo."""
    written = cast(WrittenSource, source.source)
    seen = []
    for step in range(first, len(written.steps) if count is None else first + count):
        seen.append(asyncio.run(source.next(step)))
        source.learned(DPPO.compute_advantages(seen[-1].samples))
    return seen


def replayed(data: StepData) -> list[Sample]:
    return [sample for sample in data.samples if sample.replayed]


def test_a_rare_pass_is_learned_again_with_the_advantage_that_it_had() -> None:
    easy = [[group(EASY, 4, version=step), group(EASY, 3, version=step)] for step in (1, 2)]
    first, second, third = play(source_of([group(HARD, 1)], *easy))
    assert (replayed(first), first.metrics["replay/stored"]) == ([], 0.0)
    (one,) = replayed(second)
    # of the rewards 1 and seven times 0: (1 - 1/8) / (sqrt(7) / 8) = sqrt(7)
    assert list(one.advantages[1:]) == pytest.approx([7**0.5] * 4)
    assert (one.group, one.version, one.passed) == ("replay 0/hard", 0, True)
    assert list(one.logprobs[1:]) == [-1.0] * 4, "the sampler's"
    assert {name: value for name, value in second.metrics.items() if "repla" in name} == {
        "replay/stored": 1.0, "replay/rollouts": 1.0, "replay/age": 1.0,
        "replay/tokens": pytest.approx(4 / 68), "tokens/replayed": 4.0,
    }  # fmt: skip
    assert third.metrics["replay/age"] == 2.0


def test_each_token_of_a_step_is_learned_or_replayed_and_counted() -> None:
    lost = replace(group(EASY, 0)[0], score=None, failure="the machine")
    steps = play(source_of([group(HARD, 1)], [[*group(EASY, 4), lost], group(EASY, 3)]))
    for data in steps:
        learned = sum(sample.trained_tokens for sample in data.samples)
        assert learned == data.metrics["tokens/learned"] + data.metrics["tokens/replayed"]
    numbers = steps[1].metrics
    assert [numbers[f"tokens/{name}"] for name in ("learned", "machine", "replayed")] == [64, 4, 4]
    assert len(steps[1].groups) == 2, "replays are in no table of rollouts"


def test_the_share_of_a_step_is_never_exceeded() -> None:
    # 4 of the 36 tokens of 8 rollouts and a replay are 11 %
    tight = play(source_of([group(HARD, 1)], [group(EASY, 4)]))
    assert (replayed(tight[1]), tight[1].metrics["replay/stored"]) == ([], 1.0)
    assert tight[1].metrics["replay/tokens"] == 0.0


def test_tokens_of_groups_with_equal_rewards_make_no_room_for_replays() -> None:
    (_, second) = play(source_of([group(HARD, 1)], [group(EASY, 4), *[group(EASY, 0)] * 9]))
    assert replayed(second) == [], "4 of 36 tokens that teach"


@pytest.mark.parametrize(
    ("why", "rollouts"),
    [
        ("no pass", group(HARD, 0)),
        ("not hard", group(HARD, 2)),
        ("forgeable", [with_execution(group(HARD, 1)[0], forgeable=True), *group(HARD, 1)[1:]]),
        ("the machine failed", [replace(group(HARD, 1)[0], score=None, failure="no machine"),
                                *group(HARD, 0)]),
        ("unpaid", [replace(group(HARD, 1)[0], score=group(HARD, 0)[0].score),
                    *group(HARD, 0)]),
    ],
)  # fmt: skip
def test_what_is_no_proven_pass_of_a_hard_task_is_never_stored(
    why: str, rollouts: list[Rollout]
) -> None:
    source = source_of([rollouts])
    play(source)
    assert source.passes.stored == [], why


def test_a_forgeable_verdict_is_no_pass_even_where_its_reward_is_best() -> None:
    paid = with_execution(group(HARD, 1)[0], forgeable=True)
    assert paid.score is not None
    assert paid.score.total == 1.0
    source = source_of([[paid, *group(HARD, 1, of=7)]])
    play(source)
    assert len(source.passes.stored) == 1, "of the two that are paid, the proven one"


def test_a_pass_is_forgotten_when_its_task_is_solved_often_or_it_is_too_old() -> None:
    steps = [[group(HARD, 1)], [group(HARD, 5, version=1), group(EASY, 4, version=1)]]
    solved = source_of(*steps, [group(EASY, 4, version=2)] * 2)
    assert [data.metrics["replay/stored"] for data in play(solved)] == [0.0, 0.0, 0.0]
    easy = [[group(EASY, 4, version=step)] * 2 for step in range(1, 5)]
    aged = play(source_of([group(HARD, 1)], *easy, oldest=3))
    assert [data.metrics["replay/rollouts"] for data in aged] == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_a_source_resumed_from_json_gives_the_same_steps() -> None:
    steps = [
        [group(HARD, step % 2, version=step), group(EASY, 4, version=step)] for step in range(6)
    ]
    whole, first, second = (source_of(*steps, oldest=3) for _ in range(3))
    expected = play(whole)
    play(first, count=3)
    second.resume(json.loads(json.dumps(first.position)))
    rest = play(second, first=3)
    assert any(replayed(data) for data in rest)
    assert [(data.samples, data.metrics) for data in rest] == [
        (data.samples, data.metrics) for data in expected[3:]
    ]
    assert second.position == whole.position


def test_a_rollout_in_parts_is_replayed_whole() -> None:
    first = group(HARD, 1)
    turn = first[0].turns[0]
    other = replace(turn, prompt_tokens=(3,))  # a chat that was rendered again
    parted = replace(first[0], turns=(turn, other))
    source = source_of([[parted, *first[1:]]], [group(EASY, 4)] * 3)
    _, second = play(source)
    assert [(one.group, one.rollout) for one in replayed(second)] == [("replay 0/hard", 0)] * 2


def learned_by_hand(samples: Sequence[Sample]) -> list[Sample]:
    """Replays of samples whose tokens the sampler gave e^-1."""
    return [
        replace(one, replayed=True, advantages=[float(mask) for mask in one.mask], group=f"r{n}")
        for n, one in enumerate(samples)
    ]


def test_the_learner_counts_replays_apart_from_fresh_tokens(tmp_path: Path) -> None:
    fresh, again = random_samples(8), learned_by_hand(random_samples(2, seed=1))
    algorithm = run_settings(algorithm={"name": "dppo"}).algorithm
    alone = make(tmp_path, algorithm=algorithms["dppo"].build(algorithm)).step(fresh, 0)
    beside = make(tmp_path, algorithm=algorithms["dppo"].build(algorithm)).step([*fresh, *again], 0)
    assert "replay/weight" not in alone
    # a random policy gives each of 300 tokens about 1/300, and the sampler gave it 1/e
    assert beside["replay/weight"] == pytest.approx(2.718 / 300, rel=0.3)
    same = ("learn/kl_engine", "learn/entropy", "learn/advantage_mean", "learn/advantage_std")
    assert [beside[name] for name in same] == pytest.approx([alone[name] for name in same])
    tokens = sum(one.trained_tokens for one in again)
    assert beside["learn/tokens"] == alone["learn/tokens"] + tokens
    assert beside["learn/grad_norm"] != alone["learn/grad_norm"]


def test_a_step_whose_only_gradient_is_of_replays_is_learned(tmp_path: Path) -> None:
    flat = [replace(one, reward=0.0) for one in random_samples(8)]
    again = learned_by_hand(random_samples(1, seed=1))
    learned = make(tmp_path, algorithm=DPPO).step([*flat, *again], 0)
    assert learned["learn/grad_norm"] > 0
    assert learned["learn/skipped"] == pytest.approx(8 / 9)
    assert "learn/kl_engine" not in learned, "no fresh token was computed"
