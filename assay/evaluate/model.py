"""Measures a model that lies on disk or on the hub: what `assay eval` does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from assay import environments, prompts, rewards
from assay.config.sections import EngineSettings, EvaluateSettings, JudgeSettings, PolicySettings
from assay.engines.base import Sampling
from assay.engines.open import open_engine
from assay.evaluate.benchmark import evaluate
from assay.evaluate.report import Evaluation, read_report, write_report
from assay.files import write_atomically
from assay.judge.open import open_judge
from assay.rollout.attempt import RolloutContext, make_prompts
from assay.rollout.prompter import Prompter
from assay.tasks import load
from assay.types import Rollout


def measure(
    name: str, model: PolicySettings, settings: EvaluateSettings, judge: JudgeSettings, seed: int,
    folder: Path,
    environment: str = "single_turn",
) -> Evaluation:  # fmt: skip
    """Evaluate `model` and write report.json, report.md and samples.jsonl (rows that `assay grade`
    reads) to `folder`.

    Raises UserError for tasks or a model that cannot be used, before anything is written.
    """
    from assay.policy.load import load_policy

    tasks = load(settings.tasks, limit=settings.limit)
    talk = environments.build({"name": environment})
    environments.require_fit(talk, tasks, settings.tasks)
    policy = load_policy(model)
    prompter = Prompter(policy.chat, talk.instructions, prompts.settings_of(model.model))
    asked = make_prompts(tasks, prompter, settings.max_tokens, policy.context)
    folder.mkdir(parents=True, exist_ok=True)

    async def run() -> tuple[Evaluation, list[list[Rollout]]]:
        async with open_judge(judge) as judging, open_engine(policy, EngineSettings()) as engine:
            sampling, reward = Sampling(settings.max_tokens), rewards.build({"tests": {}})
            context = RolloutContext(
                engine, judging, prompter, talk, reward, sampling, policy.context
            )
            return await evaluate(name, asked, settings, context, seed)

    found, groups = asyncio.run(run())
    write_report(folder, [*read_report(folder), found])
    rows = (
        _sample_row(rollout) for group in groups for rollout in group if rollout.failure is None
    )
    write_atomically(folder / "samples.jsonl", "".join(rows))
    return found


def _sample_row(rollout: Rollout) -> str:
    turn = rollout.turns[-1]
    shown = {"task_id": rollout.task.id, "solution": turn.program or ""}
    if len(rollout.turns) == 1:  # what follows an observation is no answer to the prompt
        shown["reply"] = turn.completion.text
    return (
        json.dumps(shown | {"verdict": str(rollout.execution.verdict if rollout.execution else "")})
        + "\n"
    )
