"""Stops the judge when the machine fails too often for its verdicts to be believed."""

from __future__ import annotations

from collections import deque

from assay.errors import SandboxError

TOLERATED = 20
"""Failures among the last WINDOW programs that are accepted."""
WINDOW = 200


class CircuitBreaker:
    """Counts failures of the machine among the last `window` programs."""

    def __init__(self, tolerated: int = TOLERATED, window: int = WINDOW) -> None:
        self.tolerated = tolerated
        self._failed: deque[bool] = deque(maxlen=window)

    def note(self, failure: str) -> None:
        """Count one program: how the machine failed it, or empty. Raises SandboxError for more
        failures than are tolerated.
        """
        self._failed.append(bool(failure))
        count = sum(self._failed)
        if failure and count > self.tolerated:
            last = len(self._failed)
            raise SandboxError(
                f"the machine failed {count} of the last {last} programs, at last: {failure}"
            )
