"""Measures a policy: samples of every task, judged as in training, summed up with intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from assay import rewards
from assay.config.sections import EvaluateSettings
from assay.engines.base import Sampling
from assay.evaluate.report import Evaluation, summarise
from assay.rollout.attempt import PromptedTask, RolloutContext
from assay.rollout.group import collect
from assay.rollout.meter import Meter
from assay.types import Rollout


async def evaluate(
    name: str, asked: Sequence[PromptedTask], settings: EvaluateSettings,
    context: RolloutContext, seed: int,
) -> tuple[Evaluation, list[list[Rollout]]]:  # fmt: skip
    """`settings.samples` attempts at every task under `name` (a stage or a model), with the
    rollouts [tasks][samples].

    What is measured is whether tests pass, whatever `context` rewards.
    """
    start = time.perf_counter()
    sampling = Sampling(
        settings.max_tokens, settings.temperature, settings.top_p, settings.top_k, settings.min_p
    )
    reward = rewards.build({"tests": {}})
    own = replace(
        context,
        sampling=sampling,
        reward=reward,
        scores_turns=False,
        generation=Meter(),
        judging=Meter(),
    )
    groups = await collect(asked, settings.samples, own, seed)
    seconds = time.perf_counter() - start
    rollouts = [rollout for group in groups for rollout in group]
    return summarise(
        name, settings.tasks, rollouts, temperature=settings.temperature, seconds=seconds
    ), groups
