"""Measures a policy: samples of every task, judged as in training, summed up with intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence

from assay import rewards
from assay.config.sections import EvaluateSettings
from assay.engines.base import Engine, Sampling
from assay.evaluate.report import Evaluation, summarise
from assay.judge import Judge
from assay.rollout.group import Collected, Prompted, collect


async def evaluate(
    name: str, asked: Sequence[Prompted], settings: EvaluateSettings, engine: Engine, judge: Judge, seed: int
) -> tuple[Evaluation, Collected]:  # fmt: skip
    """`settings.samples` completions of every task under `name` (a stage or a model), with the rollouts."""
    start = time.perf_counter()
    sampling = Sampling(settings.max_tokens, settings.temperature, settings.top_p)
    made = await collect(asked, settings.samples, engine, judge, rewards.build({"tests": {}}), sampling, seed)
    seconds = time.perf_counter() - start
    found = summarise(name, settings.tasks, made.rollouts, temperature=settings.temperature, seconds=seconds)
    return found, made
