"""A price per token, so that of two right programs the shorter wins."""

from __future__ import annotations

from assay.rewards import reward
from assay.types import Rollout


@reward
def length(rollout: Rollout, *, alpha: float = 0.01, on_failure: bool = False) -> float:
    """-alpha per 100 completion tokens; free for failures unless `on_failure`, or giving up early
    would pay.
    """
    return -alpha * rollout.length / 100 if rollout.passed or on_failure else 0.0
