"""Where samples come from: demonstrations, or rollouts of the policy. The step's number decides what they serve."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from assay.config.sections import RunSettings
from assay.engines.base import Engine, Sampling
from assay.errors import DataError
from assay.judge import Judge
from assay.maths.seeds import derive
from assay.policy.load import Policy
from assay.rollout.attempt import RewardFunction
from assay.rollout.group import ask, collect
from assay.rollout.samples import describe, to_samples
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
    """Demonstrations, shuffled anew each epoch."""

    temperature = 1.0

    def __init__(self, settings: RunSettings, tasks: Sequence[Task], policy: Policy) -> None:
        self.settings = settings
        self.samples = [sample for task in tasks for sample in policy.chat.dialogues(task)]
        if not self.samples:
            raise DataError(f"{settings.tasks.train} has neither demonstrations nor references to learn from")
        longest = max(self.samples, key=lambda sample: len(sample.tokens))
        if policy.context and len(longest.tokens) > policy.context:
            raise DataError(
                f"a demonstration of task {longest.group!r} has {len(longest.tokens)} tokens with its prompt, more "
                f"than the model's context of {policy.context}; leave it out"
            )
        self.steps_per_epoch = len(self.samples) / settings.dataset.batch

    async def publish(self, policy: Policy, step: int) -> None:
        """Demonstrations do not depend on the policy."""

    async def next(self, step: int) -> Seen:
        """The next `dataset.batch` demonstrations."""
        seed = derive(self.settings.seed, self.settings.stage, "data")
        return Seen(draw(self.samples, self.settings.dataset.batch, step, seed))


class RolloutSource:
    """Completions of the policy itself, judged and scored."""

    def __init__(
        self, settings: RunSettings, tasks: Sequence[Task], policy: Policy, engine: Engine, judge: Judge,
        reward: RewardFunction,
    ) -> None:  # fmt: skip
        self.settings = settings
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
        """A group of rollouts for each of the next `rollout.tasks_per_step` tasks."""
        seed, stage, rollout = self.settings.seed, self.settings.stage, self.settings.rollout
        asked = draw(self.tasks, rollout.tasks_per_step, step, derive(seed, stage, "tasks"))
        sampling_seed = derive(seed, stage, "sample", step)
        made = await collect(asked, rollout.group, self.engine, self.judge, self.reward, self.sampling, sampling_seed)
        times = {"time/rollout": made.generate_seconds, "time/judge": made.judge_seconds}
        return Seen(to_samples(made.groups), describe(made.groups) | times, made.groups)


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
