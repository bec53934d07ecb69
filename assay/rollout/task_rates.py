"""Each task's rate over its visits, and the share of the sampled tokens that taught.

A visit is a group of rollouts of one task. A group teaches where its rewards differ: in a group of
equal rewards every advantage relative to the group is 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from assay.rollout.samples import has_zero_variance
from assay.types import Metrics, Rollout

DECAY = 0.8
"""What a visit weighs beside the one after it: three visits later it counts for half."""


@dataclass(frozen=True, slots=True)
class TaskRate:
    """What the visits of one task gave.

    Visit v has p_v passes of n_v judged rollouts; of V visits, the rate is
    sum_v DECAY^(V-v) p_v / sum_v DECAY^(V-v) n_v.
    """

    visits: int = 0
    """Groups with a judged rollout."""
    taught: int = 0
    """Visits whose rewards differed."""
    passed: float = 0.0
    """Passes, decayed."""
    judged: float = 0.0
    """Judged rollouts, decayed."""

    @property
    def rate(self) -> float:
        """The decayed share that passes. There must be a visit."""
        return self.passed / self.judged

    def after(self, passed: int, judged: int, taught: bool) -> "TaskRate":
        """The rate after one more visit."""
        return TaskRate(
            self.visits + 1, self.taught + taught,
            DECAY * self.passed + passed, DECAY * self.judged + judged,
        )  # fmt: skip


@dataclass(slots=True)
class TaskRates:
    """The rates of the tasks of a stage, by id, from its first step on."""

    by_task: dict[str, TaskRate] = field(default_factory=dict)
    """Of tasks that were visited."""
    taught_tokens: int = 0
    """Tokens of judged rollouts in groups that taught."""
    sampled_tokens: int = 0
    """All tokens that were sampled, those that the machine lost among them."""

    def visit(self, task: str, passed: int, judged: int, taught: bool) -> None:
        """Count one visit of a task; one without a judged rollout is none."""
        if judged:
            before = self.by_task.get(task, TaskRate())
            self.by_task[task] = before.after(passed, judged, taught)

    def observe(self, groups: Sequence[Sequence[Rollout]]) -> Metrics:
        """Count the groups of a step; returns how much of it taught, and of all steps so far."""
        taught = sampled = 0
        for group in groups:
            judged = [rollout for rollout in group if rollout.score is not None]
            teaches = not has_zero_variance(group)
            sampled += sum(r.length + sum(r.unlearned.values()) for r in group)
            taught += sum(rollout.length for rollout in judged) if teaches else 0
            passed = sum(rollout.passed for rollout in judged)
            self.visit(group[0].task.id, passed, len(judged), teaches)
        self.taught_tokens += taught
        self.sampled_tokens += sampled
        if not self.sampled_tokens or not self.by_task:
            return {}
        metrics: Metrics = {"rollout/taught": taught / sampled} if sampled else {}
        return metrics | {
            "rollout/taught_so_far": self.taught_tokens / self.sampled_tokens,
            "rollout/visits": fmean(rate.visits for rate in self.by_task.values()),
        }

    @property
    def position(self) -> dict[str, Any]:
        """What a resumed run needs to count on, as JSON types. Nothing of it changes later."""
        tasks = {
            id: [rate.visits, rate.taught, rate.passed, rate.judged]
            for id, rate in self.by_task.items()
        }
        return {"tasks": tasks, "tokens": [self.taught_tokens, self.sampled_tokens]}

    def resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a `position`."""
        self.by_task = {id: TaskRate(*numbers) for id, numbers in position["tasks"].items()}
        self.taught_tokens, self.sampled_tokens = position["tokens"]
