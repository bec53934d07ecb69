"""Settings that are known not to train: refused where nothing could be learned, warned about where
little would be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.policy.load import context_of_model
from assay.types import Sample, Task

log = logging.getLogger(__name__)


def check_settings(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], adapted: bool
) -> None:
    """Look for traps before anything runs: warns, or raises SettingsError where nothing could be
    learned.
    """
    for reason in _errors(settings, learns_from):
        raise SettingsError(f"stage {settings.stage!r}: {reason}")
    for reason in _warnings(settings, learns_from, tasks, adapted):
        log.warning("stage %r: %s", settings.stage, reason)


def _errors(settings: RunSettings, learns_from: str) -> Iterator[str]:
    rollout = settings.rollout
    if learns_from == "rollouts":
        if not _rewards_can_teach(settings):
            yield (
                f"with rollout.tasks_per_step = {rollout.tasks_per_step} and rollout.group_size ="
                f" {rollout.group_size} every advantage of {settings.algorithm['name']} is 0,"
                " whatever the rewards; raise rollout.group_size"
            )
        context = context_of_model(settings.policy)
        if context and rollout.max_tokens >= context:
            yield (
                f"rollout.max_tokens = {rollout.max_tokens} leaves no room for a prompt in the"
                f" context of {context}"
            )


def _warnings(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], adapted: bool
) -> Iterator[str]:
    rate, batch, per_step = (
        settings.optimizer.lr,
        settings.dataset.batch_size,
        settings.rollout.tasks_per_step,
    )
    if rate and rate < 5e-6 and adapted:
        yield (
            f"optimizer.lr = {rate:g} hardly moves adapters, which want ten times the rate of full"
            " training"
        )
    if settings.steps and settings.optimizer.warmup_steps >= settings.steps:
        yield (
            f"optimizer.warmup_steps = {settings.optimizer.warmup_steps} of {settings.steps} steps:"
            " the rate never peaks"
        )
    if settings.save.best and not (settings.evaluate and settings.evaluate.every):
        yield (
            "save.best compares evaluations, and there is one at most; set evaluate.tasks and"
            " evaluate.every"
        )
    if settings.evaluate and settings.evaluate.tasks == settings.tasks.train:
        yield (
            f"evaluate.tasks = {settings.evaluate.tasks!r} is trained on: its pass rate says"
            " nothing of other tasks"
        )
    if learns_from == "dialogues":
        there = sum(len(task.demonstrations) or task.reference is not None for task in tasks)
        if batch > there:
            yield (
                f"dataset.batch_size = {batch}, but there are {there} demonstrations: each is in a"
                " batch more than once"
            )
    if learns_from == "rollouts":
        if per_step == 1:
            yield (
                "rollout.tasks_per_step = 1: each step follows the noise of one task; take 8 or"
                " more"
            )
        if (
            settings.rollout.max_staleness
            and settings.algorithm.get("importance_sampling") == "none"
        ):
            yield (
                "algorithm.importance_sampling = 'none' with rollout.max_staleness: nothing corrects"
                " for the older weights that generated"
            )
        if per_step > len(tasks):
            yield (
                f"rollout.tasks_per_step = {per_step}, but there are {len(tasks)} tasks: a step"
                " asks some twice"
            )


def _rewards_can_teach(settings: RunSettings) -> bool:
    """Whether rewards that differ as much as they can give any advantage, in an algorithm of its
    own.
    """
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    nothing, expected = (0.0,) * 3, (0.0, 0.25, 0.5)
    mask = (False, True, True)
    blank = Sample(
        (0,) * 3, mask, nothing, old_logprobs=nothing, reference_logprobs=nothing, values=expected
    )
    steps = [
        [
            replace(
                blank,
                reward=float(passed := (task + member + step) % 2),
                passed=bool(passed),
                group=str(task),
            )
            for task in range(min(settings.rollout.tasks_per_step, 2))
            for member in range(settings.rollout.group_size)
        ]
        for step in (1, 2)
    ]
    return any(
        any(sample.advantages) for made in steps for sample in algorithm.compute_advantages(made)
    )
