"""Progress for the person who watches: a bar in a terminal, a line every so often elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.trackers.base import Tracker
from assay.types import Metrics

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = {
    "reward/pass_rate": "pass {:.1%}",
    "rollout/length": "tokens {:.0f}",
    "loss": "loss {:.3g}",
    "evaluate/pass@1": "evaluation: pass@1 {:.1%}",
    "evaluate/length": "tokens {:.0f}",
    "time/generate": "generate {:.1f} s",
    "time/judge": "judge {:.1f} s",
    "time/learn": "learn {:.1f} s",
}
"""The numbers that matter, in order."""
SECONDS_BETWEEN_LINES = 5.0


def open_console(*, run: str, start_step: int, total_steps: int) -> BarTracker | LineTracker:
    """A bar where standard output is a terminal, lines where it is a file or a pipe."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return BarTracker(console, run=run, start_step=start_step, total_steps=total_steps)
    return LineTracker(console, run=run, total_steps=total_steps)


class BarTracker(Tracker):
    """A progress bar, and under it the newest step's numbers; evaluations stay above."""

    def __init__(self, console: Console, *, run: str, start_step: int, total_steps: int) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        name = TextColumn("{task.description}", markup=False)
        self._run = run
        self._progress = Progress(
            name, BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._bar = self._progress.add_task(run, total=total_steps, completed=start_step)
        self._newest = Text("", no_wrap=True, overflow="ellipsis")
        self._live = Live(Group(self._progress, self._newest), console=console)
        self._live.start(refresh=True)

    def track(self, step: int, metrics: Metrics) -> None:
        """Move the bar; print an evaluation above it."""
        if _is_evaluation(metrics):
            line = f"{self._run} step {step}  {_numbers(metrics)}"
            self._live.console.print(line, markup=False, highlight=False)
        else:
            self._progress.update(self._bar, completed=step)
            self._newest.plain = _numbers(metrics)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._live.stop()


class LineTracker(Tracker):
    """A plain line for the first step, each tenth of the way, each evaluation, and whenever five
    seconds passed.
    """

    def __init__(
        self,
        console: Console,
        *,
        run: str,
        total_steps: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._run = run
        self._total = total_steps
        self._clock = clock
        self._tenth = -1
        self._printed = clock()

    def track(self, step: int, metrics: Metrics) -> None:
        """Print the step's numbers when a line is due."""
        if not _is_evaluation(metrics):
            tenth, now = 10 * step // self._total, self._clock()
            if tenth == self._tenth and now - self._printed < SECONDS_BETWEEN_LINES:
                return
            self._tenth, self._printed = tenth, now
        line = f"{self._run} step {step}/{self._total}  {_numbers(metrics)}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _is_evaluation(metrics: Metrics) -> bool:
    return any(name.startswith("evaluate/") for name in metrics)


def _numbers(metrics: Metrics) -> str:
    return "  ".join(
        shape.format(metrics[name]) for name, shape in SHOWN.items() if name in metrics
    )
