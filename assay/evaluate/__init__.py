"""How good a policy is: evaluate it on tasks, report it, plot it; grade samples from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.load import load_evaluation, words_of
from assay.evaluate.model import EvaluationResult, evaluate
from assay.tuning import set_variables

__all__ = ["EvaluationResult", "evaluate", "evaluate_model"]


def evaluate_model(
    model: str | Path, tasks: str | Sequence[str], changes: Mapping[str, Any] | None = None, *,
    folder: Path | None = None,
) -> EvaluationResult:  # fmt: skip
    """Evaluate as `assay eval` does: `evaluate_model("runs/mine", "humaneval",
    {"evaluate.samples": 4})`.

    `changes` are settings by their dotted names. The rest is as of `evaluate`.
    """
    set_variables()
    named = {"policy.model": str(model), "evaluate.tasks": tasks, **(changes or {})}
    return evaluate(load_evaluation(None, words_of(named), {}), folder=folder)
