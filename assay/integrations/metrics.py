"""What the service counts, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper bounds of the histogram in seconds."""


class Metrics:
    """Requests by path and status, verdicts by kind, and how long requests took."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.verdicts: Counter[str] = Counter()
        self._seconds = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[path, status] += 1
        self._seconds[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def render(self, running: int, waiting: int) -> str:
        """All of it as text."""
        return "\n".join([*self._lines(running, waiting), ""])

    def _lines(self, running: int, waiting: int) -> Iterator[str]:
        yield "# TYPE assay_requests_total counter"
        for (path, status), count in sorted(self.requests.items()):
            yield f'assay_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# TYPE assay_verdicts_total counter"
        for verdict, count in sorted(self.verdicts.items()):
            yield f'assay_verdicts_total{{verdict="{verdict}"}} {count}'
        yield "# TYPE assay_running gauge"
        yield f"assay_running {running}"
        yield "# TYPE assay_waiting gauge"
        yield f"assay_waiting {waiting}"
        yield "# TYPE assay_request_seconds histogram"
        below = 0
        for bound, count in zip((*BOUNDS, "+Inf"), self._seconds, strict=True):
            below += count
            yield f'assay_request_seconds_bucket{{le="{bound}"}} {below}'
        yield f"assay_request_seconds_sum {self._sum:.6f}"
        yield f"assay_request_seconds_count {below}"
