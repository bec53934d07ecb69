"""Which tests of a task have failed programs: those come first, so that most wrong programs end
soon.
"""

from __future__ import annotations

from collections import Counter

from assay.judge.verdict_cache import KEPT, BoundedDict


class FailureCounts:
    """Failures by task and test. A pure object."""

    def __init__(self) -> None:
        self._failed: BoundedDict[bytes, Counter[int]] = BoundedDict(KEPT)

    def order(self, task: bytes, count: int) -> list[int]:
        """The numbers of `count` tests, those that failed most programs first, else as they
        stand.
        """
        failed = self._failed.get(task, Counter[int]())
        return sorted(range(count), key=lambda test: -failed[test])

    def note(self, task: bytes, test: int) -> None:
        """Count one program that failed a test."""
        self._failed[task] = self._failed.get(task, Counter()) + Counter([test])
