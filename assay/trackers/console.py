"""Progress of a stage on the console: a bar in a terminal, lines in a file or pipe."""

import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence

from assay.progress import Progress
from assay.trackers.base import Tracker
from assay.types import Metrics

SHOWN = {
    "rollout/failed": "lost {:.0f}",
    "reward/mean": "reward {:.2f}",
    "rollout/zero_variance_groups": "zero-var {:.0%}",
    "rollout/truncated": "cut {:.0%}",
    "rollout/entropy": "entropy {:.2g}",
    "learn/kl_engine": "KL {:.0e}",
    "learn/grad_norm": "grad {:.2g}",
    "loss": "loss {:.3g}",
    "learn/margin": "margin {:.2g}",
    "learn/accuracy": "accuracy {:.0%}",
    "learn/lr": "lr {:.1e}",
    "rollout/taught_so_far": "taught {:.0%}",
    "reward/pass_rate": "pass {:.1%}",
    "evaluate/pass@1": "evaluation: pass@1 {:.1%}",
    "evaluate/reward": "reward {:.3f}",
    "evaluate/lost": "lost {:.0f}",
    "rollout/length": "tokens {:.0f}",
    "evaluate/length": "tokens {:.0f}",
    "time/generate": "generate {:.1f} s",
    "time/judge": "judge {:.1f} s",
    "time/learn": "learn {:.1f} s",
}
"""The metrics that the console shows, in order; 80 columns hold those of RL up to the learning
rate."""
LOST = ("rollout/failed", "evaluate/lost")
"""Metrics that are shown unless they are 0."""
OF_RL = "reward/mean"
"""Where it is, the loss is not shown: of a policy gradient its size says nothing."""
GAP = "held_out/gap/"
"""How the metrics begin that are shown for each family of tasks."""
BETWEEN = "  "
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
        self._newest: Sequence[str] = ()

    def track(self, step: int, metrics: Metrics) -> None:
        """Move the bar, or print an evaluation above it."""
        columns = shutil.get_terminal_size().columns - 1
        lines = _filled([f"{self._run} step {step}", *_words(metrics)], columns)
        if _is_evaluation(metrics):
            self._say(lines)
        else:
            self._progress.advance()
            (self._progress.note, *_) = _filled(_words(metrics), columns)
            self._newest = lines

    def close(self) -> None:
        """Print the last step's metrics."""
        self._progress.note = ""
        self._say(self._newest)

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._progress.say(line, result=True)


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
        line = BETWEEN.join([f"{self._run} step {step}/{self._total}", *_words(metrics)])
        self._progress.say(line, result=True)


def _is_evaluation(metrics: Metrics) -> bool:
    return any(name.startswith("evaluate/") for name in metrics)


def _words(metrics: Metrics) -> list[str]:
    """Each metric that is shown, with its name."""
    gaps = {name: f"{name.removeprefix('held_out/')} {{:.1%}}" for name in metrics if GAP in name}
    hidden = [name for name in LOST if not metrics.get(name)]
    hidden += ["loss"] if OF_RL in metrics else []
    return [
        _short(shape.format(metrics[name]))
        for name, shape in (SHOWN | dict(sorted(gaps.items()))).items()
        if name in metrics and name not in hidden
    ]


def _filled(words: Sequence[str], columns: int) -> list[str]:
    """The words in lines of so many columns, those after the first indented; no word is broken."""
    lines = [""]
    for word in words:
        line = f"{lines[-1]}{BETWEEN}{word}" if lines[-1] else word
        if lines[-1] and len(line) > columns:
            lines.append(f"{BETWEEN}{word}")
        else:
            lines[-1] = line
    return lines


def _short(word: str) -> str:
    """`3e-4` for `3.0e-04`."""
    return re.sub(r"(?:\.0)?e([+-])0?", r"e\1", word)
