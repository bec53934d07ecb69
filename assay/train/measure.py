"""Measures a model that lies on disk or on the hub: what `assay eval` does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from assay.config.sections import EvaluateSettings, JudgeSettings, PolicySettings
from assay.engines.torch import TorchEngine
from assay.evaluate.benchmark import evaluate
from assay.evaluate.report import Evaluation, read_report, write_report
from assay.files import write_atomically
from assay.policy.load import load_policy
from assay.rollout.group import Collected, ask
from assay.tasks import load
from assay.train.run import open_judge
from assay.types import Rollout


def measure(
    name: str, model: PolicySettings, settings: EvaluateSettings, judge: JudgeSettings, seed: int, folder: Path
) -> Evaluation:  # fmt: skip
    """Evaluate `model` and write report.json, report.md and samples.jsonl (rows that `assay grade` reads) to `folder`.

    Raises UserError for tasks or a model that cannot be used, before anything is written.
    """
    tasks = load(settings.tasks, limit=settings.limit)
    policy = load_policy(model)
    asked = ask(tasks, policy.chat, settings.max_tokens, policy.context)
    folder.mkdir(parents=True, exist_ok=True)

    async def run() -> tuple[Evaluation, Collected]:
        async with open_judge(judge) as open_one:
            return await evaluate(name, asked, settings, TorchEngine(policy), open_one, seed)

    found, made = asyncio.run(run())
    write_report(folder, [*read_report(folder), found])
    write_atomically(folder / "samples.jsonl", "".join(map(_sample_row, made.rollouts)))
    return found


def _sample_row(rollout: Rollout) -> str:
    turn = rollout.turns[-1]
    shown = {"task_id": rollout.task.id, "solution": turn.program or "", "reply": turn.completion.text}
    return json.dumps(shown | {"verdict": str(turn.execution.verdict)}) + "\n"
