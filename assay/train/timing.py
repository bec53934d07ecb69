"""The seconds of a stage: estimated at first, corrected by every measurement, and measured no more
than they are worth.
"""

from collections.abc import Mapping

from assay.train.estimate import Forecast

SHARE, LEAST = 0.05, 5.0
"""Measuring takes at most this share of the stage's own estimate, or so many seconds."""
AGREES = 0.1
"""A part is measured no further once a measurement is within this share of what was expected."""


class Timing:
    """What is known of a stage's seconds, and whether one more measurement is worth its time."""

    def __init__(self, estimated: Forecast) -> None:
        self.estimated = estimated
        self.seconds = dict(estimated.seconds)
        self.measured: list[str] = []
        """Parts, in the order of the measurements."""
        self.left = max(LEAST, SHARE * estimated.total)
        """Seconds that measuring may still take."""
        self._settled: set[str] = set()
        self._corrected: set[str] = set()
        self._slowness = 1.0

    def wants(self, part: str, share: float = 1.0) -> bool:
        """Whether to measure `share` of a part: it is not settled, and there is time for it.
        A `step` is settled with what it is made of.
        """
        parts = {"generate", "learn"} & self.seconds.keys() if part == "step" else {part}
        slowness = 1.0 if parts <= self._corrected else self._slowness
        return not parts <= self._settled and self.seconds[part] * slowness * share <= self.left

    def add(self, seconds: Mapping[str, float], share: float = 1.0) -> None:
        """Correct the parts by seconds that were measured for this share of each."""
        self.left -= max(seconds.values())
        for part, measured in seconds.items():
            took, expected = measured / share, self.seconds.get(part)
            self.seconds[part] = took
            self.measured.append(part)
            if not expected:
                continue
            self._corrected.add(part)
            self._slowness = max(1.0, took / self.estimated.seconds[part])
            agrees = abs(took - expected) <= AGREES * expected
            if agrees:
                self._settled.add(part)
            if part == "generate" and "evaluate" in self.seconds:  # the same model generates
                self._corrected.add("evaluate")
                self.seconds["evaluate"] *= took / expected
                if agrees:
                    self._settled.add("evaluate")
        if "step" not in seconds:
            parts = ("generate", "judge", "learn")
            self.seconds["step"] = sum(self.seconds.get(part, 0.0) for part in parts)
