"""How good a policy is: evaluate it on tasks, report it, plot it; grade samples from elsewhere.

The public names load on first use: what only reads reports must not wait for models and judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.evaluate.model import EvaluationResult, evaluate

__all__ = ["EvaluationResult", "evaluate", "evaluate_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.evaluate import model

    return getattr(model, name)


def evaluate_model(
    model: str | Path, tasks: str | Sequence[str], changes: Mapping[str, Any] | None = None, *,
    folder: Path | None = None,
) -> EvaluationResult:  # fmt: skip
    """Evaluates as `assay eval` does: `evaluate_model("runs/mine", "humaneval",
    {"evaluate.samples": 4})`.

    `changes` are settings by their dotted names. The rest is as of `evaluate`.
    """
    from assay.config.load_settings import load_evaluation, words_of
    from assay.evaluate.model import evaluate
    from assay.tuning import set_variables

    set_variables()
    settings = {"policy.model": str(model), "evaluate.tasks": tasks, **(changes or {})}
    return evaluate(load_evaluation(None, words_of(settings), {}), folder=folder)
