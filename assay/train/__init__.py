"""The loop, what it draws from, and what learns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.train.stages import PlanOutcome


def train(
    config: str | Path, changes: Mapping[str, Any] | None = None, *, fresh: bool = False,
    allow_changes: bool = False,
) -> PlanOutcome:  # fmt: skip
    """Trains as `assay train` does: `train("mine.toml", {"stages.grpo.steps": 2})`.

    `config` is a settings file or the name of a recipe. `changes` are settings by their dotted
    names. A run that was stopped continues. `fresh` deletes its folder first. `allow_changes` lets
    it go on with tasks, plug-ins or a model on disk that have changed. It works inside a running
    event loop, as a notebook has one. There an interrupt ends the run without a last checkpoint.
    Raises UserError for what cannot be used, MachineError where the machine fails.
    """
    from assay.config.load_settings import load_plan, words_of
    from assay.tuning import set_variables

    set_variables()
    from assay.train.stages import run_plan

    plan = load_plan(Path(config), words_of(changes or {}))
    return run_plan(plan, fresh=fresh, allow_changes=allow_changes)
