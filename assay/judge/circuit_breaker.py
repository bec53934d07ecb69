"""Notices a machine that fails too often to be believed; counts verdicts, knows no processes."""

from __future__ import annotations

from collections import deque

from assay.errors import SandboxError

TOLERATED = 20
"""Failures among the last WINDOW programs that are borne; at the start, or in a row, it is as
many."""
WINDOW = 200


class CircuitBreaker:
    """How the last `window` programs fared. A pure object: no clock, no machine."""

    def __init__(self, tolerated: int = TOLERATED, window: int = WINDOW) -> None:
        self.tolerated = tolerated
        self._failed: deque[bool] = deque(maxlen=window)

    def note(self, failure: str) -> None:
        """Count one program: how the machine failed it, or empty. Raises SandboxError beyond what
        is tolerated.
        """
        self._failed.append(bool(failure))
        count = sum(self._failed)
        if failure and count > self.tolerated:
            raise SandboxError(
                f"the machine failed {count} of the last {len(self._failed)} programs, at last:"
                f" {failure}"
            )
