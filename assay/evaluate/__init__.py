"""How good a policy is: evaluate it on tasks, report it, plot it; grade samples from elsewhere."""

from __future__ import annotations

from assay.evaluate.model import EvaluationResult, evaluate

__all__ = ["EvaluationResult", "evaluate"]
