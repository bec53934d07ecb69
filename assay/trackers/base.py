"""The interface of trackers."""

from collections.abc import Sequence

from assay.types import Metrics, Rollout, Sample


class Tracker:
    """Receives metrics and rollouts, and ignores what it has no use for.

    Steps count from 1; an evaluation before the first step has step 0. A step may be tracked
    several times.
    """

    def track(self, step: int, metrics: Metrics) -> None:
        """Receive metrics of a step."""

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Receive all rollouts of a step by group, and what the learner made of them: samples with
        advantages.
        """

    def close(self) -> None:
        """Write what is buffered; no other call follows."""
