"""Learning-rate schedules as factors of the peak rate."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def schedule_factor(step: int, steps: int, warmup: int, schedule: Schedule) -> float:
    """The factor in [0, 1] at `step` (from 0) of `steps`: linear warm-up, then the schedule.

    The first step of a warm-up of w steps is 1 / w, never 0. A linear or cosine schedule would
    reach 0 at step `steps`.
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
