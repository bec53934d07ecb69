"""Whether the program passes its tests: the reward that everything else only shapes."""

from __future__ import annotations

from typing import Literal

from assay.rewards import reward
from assay.types import Rollout, Verdict


@reward
def tests(
    rollout: Rollout,
    *,
    mode: Literal["all", "fraction"] = "all",  # noqa: PT028  # a reward, no test of pytest's
    perfect_bonus: float = 0.0,  # noqa: PT028
) -> float:
    """1 when the last program passes every test, else 0 (or the fraction passed); and
    `perfect_bonus` when all pass.
    """
    if rollout.passed:
        return 1.0 + perfect_bonus
    execution = rollout.execution
    if (
        mode == "all"
        or execution is None
        or execution.verdict is Verdict.FORBIDDEN
        or not execution.total
    ):
        return 0.0
    return execution.passed / execution.total
