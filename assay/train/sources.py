"""Sources of samples: demonstrations, pairs, or rollouts of the policy.

The number of a step decides which samples it gets.
"""

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from assay import choices
from assay.choices import TaskPool
from assay.config.sections import RunSettings
from assay.errors import DataError
from assay.evaluate.counts import TaskResult
from assay.maths.seeds import derive
from assay.policy.load_model import Policy
from assay.rollout.attempt import RolloutContext, make_prompts, within
from assay.rollout.group import group
from assay.rollout.held_out import describe_held_out
from assay.rollout.samples import (
    describe,
    has_zero_variance,
    staleness,
    to_samples,
    token_balance,
)
from assay.rollout.stream import GroupStream
from assay.rollout.task_rates import TaskRates
from assay.sync import in_own_thread
from assay.train.learner import Learner
from assay.train.task_order import TaskOrder, draw
from assay.types import Metrics, Rollout, Sample, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepData:
    """The samples of one step, with their metrics."""

    samples: list[Sample]
    """Samples for the learner."""
    metrics: Metrics = field(default_factory=dict)
    """Metrics of the samples."""
    groups: list[list[Rollout]] = field(default_factory=list)
    """The rollouts that the samples come from."""


class Source(Protocol):
    """Gives the learner the samples of each step. By default these depend on the step alone."""

    temperature: float
    """Softmax temperature of the samples."""
    steps_per_epoch: float
    """Steps in which every task or row is used once."""

    async def publish(self, learner: Learner, step: int) -> None:
        """Load the learner's new weights before step `step`."""
        return

    @abstractmethod
    async def next(self, step: int) -> StepData:
        """The samples of step `step` (from 0)."""

    def learned(self, samples: Sequence[Sample]) -> None:
        """Note the samples of the last step as they were learned, with their advantages."""
        return

    @abstractmethod
    def longest(self, tokens: int) -> list[Sample]:
        """Samples of at least `tokens` tokens, if a step has so many, the longest that may come."""

    @property
    def position(self) -> dict[str, Any]:
        """The state that a resumed run needs to get the same samples, as JSON types."""
        return {}

    def resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a `position`."""
        return

    async def close(self) -> None:
        """Stop all background work."""
        return


class DatasetSource(Source):
    """Rows of samples (a demonstration, or a pair), shuffled again in each epoch."""

    temperature = 1.0

    def __init__(
        self, settings: RunSettings, rows: Sequence[Sequence[Sample]], policy: Policy,
        sets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`sets`: the set of each task by its id, where rows are of tasks."""
        self.settings = settings
        if not rows:
            raise DataError(
                f"{settings.tasks.spec} has neither demonstrations nor references to learn from"
            )
        sized = [(max(len(sample.tokens) for sample in row), row[0].group, row) for row in rows]
        what = f"{{}} tokens to learn from, more than the model's context of {policy.context}"
        fitting = within(policy.context, sized, settings.tasks.too_long, what)
        self.rows = in_shares(fitting, [sets.get(row[0].group, "") for row in fitting], settings)
        self.steps_per_epoch = len(self.rows) / settings.dataset.batch_size

    async def next(self, step: int) -> StepData:
        """The samples of the next `dataset.batch_size` rows, each row as one group."""
        seed = derive(self.settings.seed, self.settings.stage, "data")
        batch = draw(self.rows, self.settings.dataset.batch_size, step, seed)
        return StepData(
            [
                replace(sample, group=f"{n}/{sample.group}")
                for n, row in enumerate(batch)
                for sample in row
            ]
        )

    def longest(self, tokens: int) -> list[Sample]:
        """The longest rows."""
        rows = sorted(self.rows, key=lambda row: -sum(len(sample.tokens) for sample in row))
        sizes = accumulate(sum(len(sample.tokens) for sample in row) for row in rows)
        count = 1 + sum(size < tokens for size in sizes)
        return list(chain.from_iterable(rows[: min(count, self.settings.dataset.batch_size)]))


class RolloutSource(Source):
    """Judged and scored rollouts of the policy, at most `rollout.max_staleness` versions old."""

    def __init__(
        self,
        settings: RunSettings,
        tasks: Sequence[Task],
        policy: Policy,
        context: RolloutContext,
        max_resamples: int = 0,
        sets: Mapping[str, str] = MappingProxyType({}),
        screened: Sequence[TaskResult] = (),
    ) -> None:
        """`sets`: the set of each task by its id. `screened`: results that tasks begin with, each
        as the first visit of its task.
        """
        rollout = self.rollout = settings.rollout
        self.sets = sets
        self.max_resamples = max_resamples
        prompts = make_prompts(
            tasks, context.prompter, rollout.max_tokens, policy.context, settings.tasks.too_long
        )
        self.tasks = in_shares(
            prompts, [sets.get(prompt.task.id, "") for prompt in prompts], settings
        )
        self.context = context
        self.context.generation.capacity = lambda: context.engine.max_concurrent
        self.temperature = rollout.temperature
        self.steps_per_epoch = len(self.tasks) / rollout.tasks_per_step
        self.seed = partial(derive, settings.seed, settings.stage)
        per_step, prefetch = rollout.tasks_per_step, rollout.prefetch_groups
        prefetch = rollout.max_staleness * per_step if prefetch is None else prefetch
        self.stream = GroupStream(
            self._start_group, per_step=per_step, max_staleness=rollout.max_staleness,
            prefetch=prefetch,
        )  # fmt: skip
        self.rates = TaskRates()
        for result in screened:
            differs = 0 < result.passed < result.samples
            self.rates.visit(result.id, result.passed, result.samples, differs)
        chance = choices.build(settings.tasks.choice)(TaskPool(self.tasks, self.rates))
        self.order = TaskOrder(len(self.tasks), self.seed("tasks"), chance)
        self.sync_seconds = 0.0

    @property
    def position(self) -> dict[str, Any]:
        """The position of the stream of groups, of the order of tasks, and the tasks' rates."""
        positions = {"rates": self.rates.position, "order": self.order.position}
        return self.stream.position | positions

    def resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a `position`."""
        self.stream.resume(position["next"], position["open"])
        if "order" in position:
            self.rates.resume(position["rates"])
            self.order.resume(position["order"])
        else:  # of a run that an earlier version began: groups had the tasks of their numbers
            self.order.resume_uniform(position["next"], position["open"])

    def longest(self, tokens: int) -> list[Sample]:
        """Completions of `rollout.max_tokens` tokens for the longest prompts."""
        length, each = self.rollout.max_tokens, self.rollout.group_size
        prompts = sorted((task.prompt for task in self.tasks), key=len, reverse=True)
        first = enumerate(prompts[: self.rollout.tasks_per_step])
        all_of_step = [(task, prompt, place) for task, prompt in first for place in range(each)]
        sizes = accumulate(
            length + (0 if place else len(prompt)) for _, prompt, place in all_of_step
        )
        count = 1 + sum(size < tokens for size in sizes)
        return [
            Sample(
                prompt + (0,) * length, (False,) * len(prompt) + (True,) * length,
                (0.0,) * (len(prompt) + length), reward=float(place % 2), group=str(task),
            )
            for task, prompt, place in all_of_step[:count]
        ]  # fmt: skip

    async def publish(self, learner: Learner, step: int) -> None:
        """Load the learner's weights into the engine; groups that start now have them."""
        start = time.perf_counter()
        await self.stream.publish(step)
        await self.context.engine.load(await in_own_thread(learner.whole_policy), step)
        self.sync_seconds = time.perf_counter() - start

    async def next(self, step: int) -> StepData:
        """`rollout.tasks_per_step` groups of rollouts.

        With `max_resamples`, zero-variance groups are replaced by new groups, in at most that many
        rounds; then the step runs without them. The metrics are about all sampled groups.
        """
        start = time.perf_counter()
        count, rounds = self.rollout.tasks_per_step, 0
        groups: list[list[Rollout]] = []
        usable: list[list[Rollout]] = []
        while len(usable) < count and rounds <= self.max_resamples:
            finished = await self.stream.take(count - len(usable))
            self.order.close(group.number for group in finished)
            groups += [group.rollouts for group in finished]
            usable = [group for group in groups if self.is_usable(group)]
            rounds += 1
        learnable = [group if self.is_usable(group) else [] for group in groups]
        samples = to_samples(learnable, self.rollout.max_tokens)
        metrics = describe(groups) | token_balance(groups, learnable) | staleness(groups, step)
        metrics |= self.rates.observe(groups)
        metrics |= describe_held_out(groups, self.context.held_out, self.sets)
        metrics |= {"rollout/rounds": float(rounds)} | self._times(time.perf_counter() - start)
        return StepData(samples, metrics, groups)

    def is_usable(self, group: Sequence[Rollout]) -> bool:
        """Whether the learner gets the group, or a new one replaces it."""
        return not (self.max_resamples and has_zero_variance(group))

    async def close(self) -> None:
        """Cancel the running groups."""
        await self.stream.close()

    def _times(self, waited: float) -> Metrics:
        """Seconds of generation, judging, weight sync and waiting; they may overlap."""
        generation, judging = self.context.generation.reset(), self.context.judging.reset()
        return {
            "time/generate": generation.busy,
            "time/judge": judging.busy,
            "time/sync": self.sync_seconds,
            "time/wait": waited,
            "engine/tokens_per_second": generation.count / generation.busy
            if generation.busy
            else 0.0,
            "engine/occupancy": generation.occupied / generation.busy if generation.busy else 0.0,
            **self.context.engine.metrics,
        }

    def _start_group(self, number: int) -> Coroutine[None, None, list[Rollout]]:
        prompted_task = self.tasks[self.order.task_of(number)]
        return group(
            prompted_task, self.rollout.group_size, self.context, self.seed("sample", number)
        )


def in_shares(items: Sequence[T], sets: Sequence[str], settings: RunSettings) -> list[T]:
    """The items, repeated so that each set has its share of `tasks.weights`, and every item is
    there at least once. `sets` has the set of each item.
    """
    if not settings.tasks.weights:
        return list(items)
    weights, sizes = settings.tasks.weights, Counter(sets)
    shares = dict(zip(settings.tasks.train, weights, strict=True))
    each = [shares[name] / sizes[name] for name in sets]
    ends = [int(end / min(each) + 1e-6) for end in accumulate(each, initial=0.0)]
    counts = (after - before for before, after in pairwise(ends))
    return [item for item, count in zip(items, counts, strict=True) for _ in range(count)]
