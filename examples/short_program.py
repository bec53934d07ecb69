"""A reward: short programs, where they pass.

In the settings of a run:

    plugins = ["short_program.py"]
    rewards = { tests = {}, short_program = { weight = 0.1, lines = 5 } }
"""

from __future__ import annotations

from assay.rewards import reward
from assay.types import Rollout, Verdict


@reward
def short_program(rollout: Rollout, *, lines: int = 10) -> float:
    """1 for a passing program of one line, falling to 0 at `lines`; 0 for one that fails."""
    if rollout.execution is None or rollout.execution.verdict is not Verdict.PASS:
        return 0.0
    count = len((rollout.turns[-1].program or "").strip().splitlines())
    return max(0.0, 1 - (count - 1) / (lines - 1))
