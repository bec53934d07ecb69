"""Learning-rate schedules as factors of the peak rate."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def factor(step: int, steps: int, warmup: int, schedule: Schedule) -> float:
    """The factor in [0, 1] at `step` (from 0) of `steps`: a linear rise over `warmup` steps, then
    the schedule's fall.

    The first step of a warm-up of w is 1 / w, never 0; a linear or cosine fall would reach 0 at
    step `steps`.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - progress
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
