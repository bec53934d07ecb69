"""What the service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper bounds of the histogram in seconds."""


class Metrics:
    """Requests by path and status, verdicts by kind, what runs and waits, and how long requests
    took.
    """

    def __init__(self) -> None:
        self.registry = kept = CollectorRegistry()
        self.requests = Counter(
            "assay_requests", "Requests answered.", ["path", "status"], registry=kept
        )
        self.verdicts = Counter("assay_verdicts", "Programs judged.", ["verdict"], registry=kept)
        self.running = Gauge("assay_running", "Requests whose programs run.", registry=kept)
        self.waiting = Gauge("assay_waiting", "Requests that wait for a slot.", registry=kept)
        self.seconds = Histogram(
            "assay_request_seconds", "Time to an answer.", buckets=BOUNDS, registry=kept
        )
