"""The service's metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper bounds of the histogram in seconds."""


class Metrics:
    """Requests by path and status, verdicts by kind, load, and the time that requests took."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "assay_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self.verdicts = Counter(
            "assay_verdicts", "Programs judged.", ["verdict"], registry=registry
        )
        self.running = Gauge("assay_running", "Requests whose programs run.", registry=registry)
        self.waiting = Gauge("assay_waiting", "Requests that wait for a slot.", registry=registry)
        self.seconds = Histogram(
            "assay_request_seconds", "Time to an answer.", buckets=BOUNDS, registry=registry
        )
