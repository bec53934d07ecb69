"""Where the numbers and rollouts of a run go: the console, files, dashboards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from assay.config.sections import TrackerName
from assay.errors import SettingsError
from assay.progress import Progress
from assay.trackers.base import Tracker
from assay.trackers.console import open_console
from assay.trackers.dashboards import TensorboardTracker, WandbTracker
from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker
from assay.types import Metrics, Rollout

__all__ = ["Tracker", "Trackers", "open_trackers"]

log = logging.getLogger(__name__)


class Trackers(Tracker):
    """Several trackers as one. One that breaks while the run goes on is warned of once and called
    again each time.
    """

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = trackers
        self._broken: set[str] = set()

    def track(self, step: int, metrics: Metrics) -> None:
        """Hand the numbers of a step to every tracker."""
        self._each(lambda tracker: tracker.track(step, metrics))

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        """Hand the rollouts of a step to every tracker."""
        self._each(lambda tracker: tracker.rollouts(step, groups))

    def close(self) -> None:
        """Close every tracker."""
        self._each(lambda tracker: tracker.close())

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in self._trackers.items():
            try:
                call(tracker)
            except Exception as error:  # noqa: BLE001  hours of training outweigh a full disk or a dashboard that is down
                if name not in self._broken:
                    log.warning(
                        "tracker %r failed, the run goes on: %s: %s",
                        name,
                        type(error).__name__,
                        error,
                    )
                self._broken.add(name)


def open_trackers(
    names: Sequence[TrackerName],
    folder: Path,
    progress: Progress,
    *,
    run: str,
    start_step: int,
    total_steps: int,
) -> Trackers:
    """Open the named trackers on a run's folder; what they hold beyond `start_step`, the last step
    done, is cut away.

    Raises SettingsError for a package that is not installed, or a folder that cannot be written to;
    then none stays open.
    """
    trackers: dict[str, Tracker] = {}
    with ExitStack() as opened:
        for name in names:
            try:
                trackers[name] = _open(
                    name, folder, progress, run=run, start_step=start_step, total_steps=total_steps
                )
            except OSError as error:
                raise SettingsError(
                    f"tracker {name!r} cannot write: {error}; choose another `folder`"
                ) from error
            opened.callback(trackers[name].close)
        opened.pop_all()
    return Trackers(trackers)


def _open(
    name: TrackerName,
    folder: Path,
    progress: Progress,
    *,
    run: str,
    start_step: int,
    total_steps: int,
) -> Tracker:
    match name:
        case "console":
            return open_console(progress, run=run, start_step=start_step, total_steps=total_steps)
        case "jsonl":
            return JsonlTracker(folder, start_step=start_step)
        case "rollouts":
            return RolloutTracker(folder, start_step=start_step)
        case "tensorboard":
            return TensorboardTracker(folder, start_step=start_step)
        case "wandb":
            return WandbTracker(folder, run=run, start_step=start_step)
