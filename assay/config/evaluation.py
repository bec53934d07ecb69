"""The settings of `assay eval`: the tables of training that an evaluation needs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from assay.config.generation import EngineSettings, PromptSettings
from assay.config.section import Section
from assay.config.sections import EvaluateSettings, JudgeSettings, PolicySettings


class EvaluationRun(Section):
    """One evaluation, completely described. A settings file of training is one too: what an
    evaluation does not need is ignored there.
    """

    seed: int = 0
    """Seed of sampling."""
    plugins: tuple[str, ...] = ()
    """Your Python files that register tasks, kinds of tests, rewards, environments or languages."""
    every_checkpoint: bool = False
    """Evaluate all checkpoints of the run or stage that `policy.model` names, not only the
    newest."""
    policy: PolicySettings = PolicySettings()
    """The model: also an adapter, a checkpoint, or the folder of a run or of its stage."""
    engine: EngineSettings = EngineSettings()
    """How completions are generated."""
    evaluate: EvaluateSettings
    """Tasks and sampling."""
    judge: JudgeSettings = JudgeSettings()
    """Limits of the programs that the judge runs."""
    prompt: PromptSettings | None = None
    """How a task is put to the model. Absent: as a checkpoint was trained, else the defaults."""
    environment: dict[str, Any] = Field({"name": "single_turn"})
    """What happens after a completion: the environment's `name` and parameters."""
