"""A penalty per token, so that of two correct programs the shorter one scores more."""

from assay.rewards import reward
from assay.types import Rollout


@reward
def length(rollout: Rollout, *, alpha: float = 0.01, on_failure: bool = False) -> float:
    """-alpha per 100 completion tokens. Failures pay nothing unless `on_failure`: otherwise giving
    up early would pay off.
    """
    return -alpha * rollout.length / 100 if rollout.passed or on_failure else 0.0
