"""Where samples come from: demonstrations, or rollouts of the policy. The step's number decides what they serve."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from assay.config.sections import RunSettings
from assay.engines.base import Engine, Sampling
from assay.errors import DataError
from assay.judge import Judge
from assay.maths.seeds import derive
from assay.policy.load import Policy
from assay.rollout.attempt import RewardFunction
from assay.rollout.group import Collected, Prompted, ask, collect
from assay.rollout.samples import describe, mixed, to_samples
from assay.types import Metrics, Rollout, Sample, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a source gives for one step."""

    samples: list[Sample]
    """To learn from."""
    metrics: Metrics = field(default_factory=dict)
    """What there is to say of them."""
    groups: list[list[Rollout]] = field(default_factory=list)
    """The rollouts behind them."""


class Source(Protocol):
    """Gives the samples of a step. It keeps no position: the step decides, so a resumed run draws the same."""

    temperature: float
    """Softmax temperature under which the samples were drawn."""
    steps_per_epoch: float
    """Steps that serve everything once."""

    async def publish(self, policy: Policy, step: int) -> None:
        """Learn of the policy's new weights, before step `step`."""

    async def next(self, step: int) -> Seen:
        """The samples of step `step` (from 0)."""


class DatasetSource:
    """Rows of samples that belong together (a demonstration, or a pair), shuffled anew each epoch."""

    temperature = 1.0

    def __init__(self, settings: RunSettings, rows: Sequence[Sequence[Sample]], policy: Policy) -> None:
        self.settings = settings
        self.rows = rows
        if not rows:
            raise DataError(f"{settings.tasks.train} has neither demonstrations nor references to learn from")
        longest = max((sample for row in rows for sample in row), key=lambda sample: len(sample.tokens))
        if policy.context and len(longest.tokens) > policy.context:
            raise DataError(
                f"a row of task {longest.group!r} to learn from has {len(longest.tokens)} tokens with its prompt, more "
                f"than the model's context of {policy.context}; leave it out"
            )
        self.steps_per_epoch = len(rows) / settings.dataset.batch

    async def publish(self, policy: Policy, step: int) -> None:
        """Demonstrations do not depend on the policy."""

    async def next(self, step: int) -> Seen:
        """The samples of the next `dataset.batch` rows, each row a group of its own."""
        seed = derive(self.settings.seed, self.settings.stage, "data")
        drawn = draw(self.rows, self.settings.dataset.batch, step, seed)
        return Seen([replace(one, group=f"{place}/{one.group}") for place, row in enumerate(drawn) for one in row])


class RolloutSource:
    """Completions of the policy itself, judged and scored."""

    def __init__(
        self, settings: RunSettings, tasks: Sequence[Task], policy: Policy, engine: Engine, judge: Judge,
        reward: RewardFunction, refills: int = 0,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.refills = refills
        self.tasks = ask(tasks, policy.chat, settings.rollout.max_tokens, policy.context)
        self.engine = engine
        self.judge = judge
        self.reward = reward
        rollout = settings.rollout
        self.temperature = rollout.temperature
        self.sampling = Sampling(rollout.max_tokens, rollout.temperature, rollout.top_p)
        self.steps_per_epoch = len(tasks) / rollout.tasks_per_step

    async def publish(self, policy: Policy, step: int) -> None:
        """Let the engine write with the policy's weights."""
        await self.engine.load(policy, step)

    async def next(self, step: int) -> Seen:
        """A group of rollouts for each of the next `rollout.tasks_per_step` tasks.

        With `refills`, groups of equal rewards are replaced, whole, by groups of tasks that the step has not asked yet,
        at most so many times; then the step goes without them. What is told of the step tells of all that was sampled.
        """
        wanted = self.settings.rollout.tasks_per_step
        rest = self.tasks
        asked = draw(rest, wanted, step, derive(self.settings.seed, self.settings.stage, "tasks"))
        made = [await self._collect(step, 0, asked)]
        kept = made[0].groups
        while self.refills:
            kept = [group for one in made for group in one.groups if mixed(group)]
            rest = [task for task in rest if task not in asked]
            if len(kept) >= wanted or len(made) > self.refills or not rest:
                break
            again = derive(self.settings.seed, self.settings.stage, "tasks", step, len(made))
            asked = draw(rest, min(wanted - len(kept), len(rest)), 0, again)
            made.append(await self._collect(step, len(made), asked))
        groups = [group for one in made for group in one.groups]
        times = {
            "time/rollout": sum(one.generate_seconds for one in made),
            "time/judge": sum(one.judge_seconds for one in made),
        }
        refilled = {"rollout/rounds": float(len(made))} if self.refills else {}
        samples = to_samples(kept, self.sampling.max_tokens)
        return Seen(samples, describe(groups) | refilled | times, groups)

    async def _collect(self, step: int, round: int, asked: Sequence[Prompted]) -> Collected:
        """A group for each of the tasks asked; a refill has words of its own."""
        words = derive(self.settings.seed, self.settings.stage, "sample", step, *((round,) if round else ()))
        group = self.settings.rollout.group
        return await collect(asked, group, self.engine, self.judge, self.reward, self.sampling, words)


def draw(items: Sequence[T], count: int, step: int, seed: int) -> list[T]:
    """`count` items for step `step`: the items in a fresh order each epoch, taken one after another without gaps."""
    first = step * count
    picked: list[T] = []
    for epoch in range(first // len(items), math.ceil((first + count) / len(items))):
        order = list(range(len(items)))
        random.Random(derive(seed, epoch)).shuffle(order)
        start = epoch * len(items)
        picked += [items[i] for i in order[max(0, first - start) : max(0, first + count - start)]]
    return picked
