"""Rollouts with replays: the passes of hard tasks are learned from again in later steps."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from assay.config.sections import ReplaySettings
from assay.rollout.hard_passes import HardPasses, as_replayed
from assay.rollout.samples import has_zero_variance
from assay.train.learner import Learner
from assay.train.sources import RolloutSource, Source, StepData
from assay.types import Metrics, Sample


class ReplaySource(Source):
    """The steps of another source, each with some passes of earlier steps beside its samples.

    A task is hard while its rate is below `replay.below`.
    """

    def __init__(self, source: RolloutSource, replay: ReplaySettings) -> None:
        self.source, self.replay = source, replay
        self.temperature, self.steps_per_epoch = source.temperature, source.steps_per_epoch
        self.passes = HardPasses(replay.keep)
        self.new_passes: dict[tuple[int, int], str] = {}
        """Of the last step, the tasks of rollouts to store, by the places of group and rollout."""

    def is_hard(self, task: str) -> bool:
        """Whether the task is seldom solved."""
        rate = self.source.rates.by_task.get(task)
        return rate is not None and rate.rate < self.replay.below

    async def publish(self, learner: Learner, step: int) -> None:
        """Load the learner's weights into the engine."""
        await self.source.publish(learner, step)

    async def next(self, step: int) -> StepData:
        """The source's step, and replays after its samples. Its rollouts are the fresh ones."""
        data = await self.source.next(step)
        self.passes.forget(step - self.replay.oldest, self.is_hard)
        taught = {n for n, group in enumerate(data.groups) if not has_zero_variance(group)}
        fresh = sum(s.trained_tokens for s in data.samples if s.place and s.place[0] in taught)
        passes = self.passes.take(fresh, self.replay.share)
        self.new_passes = {
            (place, index): rollout.task.id
            for place, group in enumerate(data.groups)
            for index, rollout in enumerate(group)
            if rollout.score is not None and rollout.passed and self.is_hard(rollout.task.id)
        }
        tokens = sum(each.tokens for each in passes)
        metrics: Metrics = {
            "replay/stored": float(len(self.passes.stored)),
            "replay/rollouts": float(len(passes)),
            "replay/tokens": tokens / (fresh + tokens) if tokens else 0.0,
            "tokens/replayed": float(tokens),
        }
        if passes:
            metrics["replay/age"] = fmean(step - each.version for each in passes)
        samples = [*data.samples, *as_replayed(passes)]
        return StepData(samples, data.metrics | metrics, data.groups)

    def learned(self, samples: Sequence[Sample]) -> None:
        """Store the passes of hard tasks with the advantages that they had."""
        rollouts: dict[tuple[int, int], list[Sample]] = {}
        for sample in samples:
            if sample.place and sample.place[:2] in self.new_passes:
                rollouts.setdefault(sample.place[:2], []).append(sample)
        for place, parts in sorted(rollouts.items()):
            self.passes.store(self.new_passes[place], parts)

    def longest(self, tokens: int) -> list[Sample]:
        """As the source says: a replay is not longer than its rollout was."""
        return self.source.longest(tokens)

    @property
    def position(self) -> dict[str, Any]:
        """The source's position, and the stored passes."""
        return self.source.position | {"replay": self.passes.position}

    def resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a `position`."""
        self.source.resume(position)
        self.passes.resume(position["replay"])

    async def close(self) -> None:
        """Stop all background work."""
        await self.source.close()
