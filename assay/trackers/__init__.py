"""Trackers: where the metrics and rollouts of a run go (console, files, dashboards)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from assay.config.sections import RunSettings, TrackerName
from assay.errors import SettingsError, UnhealthyError
from assay.progress import Progress
from assay.trackers.base import Tracker
from assay.trackers.console import open_console
from assay.trackers.dashboards import DashboardTracker, TensorboardTracker
from assay.trackers.health import HealthTracker
from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker
from assay.types import Metrics, Rollout, Sample

__all__ = ["Tracker", "Trackers", "open_trackers"]

log = logging.getLogger(__name__)


class Trackers(Tracker):
    """Several trackers as one. When one fails, the run goes on with one warning."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = trackers
        self._broken: set[str] = set()

    def track(self, step: int, metrics: Metrics) -> None:
        """Give the metrics of a step to every tracker."""
        self._each(lambda tracker: tracker.track(step, metrics))

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Give the rollouts of a step to every tracker."""
        self._each(lambda tracker: tracker.rollouts(step, groups, samples))

    def close(self) -> None:
        """Close every tracker."""
        self._each(lambda tracker: tracker.close())

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in self._trackers.items():
            try:
                call(tracker)
            except UnhealthyError:  # the user's wish, and of the last tracker
                raise
            except Exception as error:  # noqa: BLE001  a full disk or an offline dashboard must not end hours of training
                if name not in self._broken:
                    log.warning(
                        "tracker %r failed, the run goes on: %s: %s",
                        name,
                        type(error).__name__,
                        error,
                    )
                self._broken.add(name)


def open_trackers(
    settings: RunSettings, folder: Path, progress: Progress, *, start_step: int, total_steps: int,
    tokens: Callable[[], Sequence[bytes]] | None = None,
) -> Trackers:  # fmt: skip
    """Open `settings.trackers` in a stage's folder, and one that warns of unhealthy training and
    ends it where `settings.stop_if` says so. `tokens` gives the bytes of each token id; None where
    nothing is generated.

    Entries after `start_step`, the last step done, are deleted. Raises SettingsError for a missing
    package or a folder that cannot be written to; then all trackers are closed again.
    """
    trackers: dict[str, Tracker] = {}

    def open_tracker(name: TrackerName) -> Tracker:
        match name:
            case "console":
                run = f"{settings.name}/{settings.stage}"
                return open_console(
                    progress, run=run, start_step=start_step, total_steps=total_steps
                )
            case "jsonl":
                return JsonlTracker(folder, start_step=start_step)
            case "rollouts":
                return RolloutTracker(folder, start_step=start_step, tokens=tokens)
            case "tensorboard":
                return TensorboardTracker(folder, start_step=start_step)
            case "wandb" | "trackio":
                return DashboardTracker(name, folder.parent, settings)

    with ExitStack() as opened:
        for name in settings.trackers:
            try:
                trackers[name] = open_tracker(name)
            except OSError as error:
                raise SettingsError(
                    f"tracker {name!r} cannot write: {error}; choose another `folder`"
                ) from error
            opened.callback(trackers[name].close)
        opened.pop_all()
    health = HealthTracker(folder, start_step=start_step, stop_if=settings.stop_if)
    return Trackers({**trackers, "health": health})
