"""What a tracker is: somewhere that the numbers and rollouts of a run go."""

from __future__ import annotations

from collections.abc import Sequence

from assay.types import Metrics, Rollout


class Tracker:
    """Takes what it has a use for and lets the rest pass.

    Steps count from 1; what is known before the first step has step 0. A step may be tracked more
    than once.
    """

    def track(self, step: int, metrics: Metrics) -> None:
        """Take the numbers of a step, or some of them."""

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        """Take the rollouts of a step, all of them at once, group after group."""

    def close(self) -> None:
        """Write what is still held back; nothing is tracked afterwards."""
