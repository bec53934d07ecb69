"""Progress of a stage on the console: a bar in a terminal, lines in a file or pipe."""

import sys
import time
from collections.abc import Callable

from assay.progress import Progress
from assay.trackers.base import Tracker
from assay.types import Metrics

SHOWN = {
    "reward/pass_rate": "pass {:.1%}",
    "rollout/failed": "lost {:.0f}",
    "rollout/length": "tokens {:.0f}",
    "loss": "loss {:.3g}",
    "evaluate/pass@1": "evaluation: pass@1 {:.1%}",
    "evaluate/reward": "reward {:.3f}",
    "evaluate/lost": "lost {:.0f}",
    "evaluate/length": "tokens {:.0f}",
    "time/generate": "generate {:.1f} s",
    "time/judge": "judge {:.1f} s",
    "time/learn": "learn {:.1f} s",
}
"""The metrics that the console shows, in order."""
LOST = ("rollout/failed", "evaluate/lost")
"""Metrics that are shown unless they are 0."""
GAP = "held_out/gap/"
"""How the metrics begin that are shown for each family of tasks."""
SECONDS_BETWEEN_LINES = 5.0


def open_console(progress: Progress, *, run: str, start_step: int, total_steps: int) -> Tracker:
    """A bar where standard output is a terminal, lines where it is a file or a pipe."""
    progress.phase(run, total_steps, start_step)
    if sys.stdout.isatty():
        return BarTracker(progress, run=run)
    return LineTracker(progress, run=run, total_steps=total_steps)


class BarTracker(Tracker):
    """A bar with the newest step's metrics; the lines of evaluations and of the last step stay."""

    def __init__(self, progress: Progress, *, run: str) -> None:
        self._progress = progress
        self._run = run
        self._newest = ""

    def track(self, step: int, metrics: Metrics) -> None:
        """Move the bar, or print an evaluation above it."""
        line = f"{self._run} step {step}  {_numbers(metrics)}"
        if _is_evaluation(metrics):
            self._progress.say(line, result=True)
        else:
            self._progress.advance()
            self._progress.note = _numbers(metrics)
            self._newest = line

    def close(self) -> None:
        """Print the last step's metrics."""
        self._progress.note = ""
        if self._newest:
            self._progress.say(self._newest, result=True)


class LineTracker(Tracker):
    """A line for the first step, each tenth of the steps, each evaluation, and every 5 seconds."""

    def __init__(
        self,
        progress: Progress,
        *,
        run: str,
        total_steps: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._run = run
        self._total = total_steps
        self._clock = clock
        self._tenth = -1
        self._printed = clock()

    def track(self, step: int, metrics: Metrics) -> None:
        """Print the step's metrics when a line is due."""
        if not _is_evaluation(metrics):
            self._progress.advance()
            tenth, now = 10 * step // self._total, self._clock()
            if tenth == self._tenth and now - self._printed < SECONDS_BETWEEN_LINES:
                return
            self._tenth, self._printed = tenth, now
        line = f"{self._run} step {step}/{self._total}  {_numbers(metrics)}"
        self._progress.say(line, result=True)


def _is_evaluation(metrics: Metrics) -> bool:
    return any(name.startswith("evaluate/") for name in metrics)


def _numbers(metrics: Metrics) -> str:
    gaps = {name: f"{name.removeprefix('held_out/')} {{:.1%}}" for name in metrics if GAP in name}
    formats = SHOWN | dict(sorted(gaps.items()))
    return "  ".join(
        shape.format(metrics[name])
        for name, shape in formats.items()
        if name in metrics and (metrics[name] or name not in LOST)
    )
