"""Warnings while a stage trains: what goes wrong, and which setting helps. Each is given once, kept
as an event in events.jsonl, and posted to the webhook in the environment variable ASSAY_WEBHOOK.
One that the setting `stop_if` names ends the run.
"""

import json
import logging
import os
from collections import deque
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

from assay.config.warning_names import WarningName
from assay.errors import UnhealthyError
from assay.trackers.base import Tracker
from assay.trackers.jsonl import append_event, keep_steps, read_steps
from assay.trackers.rules import RULES, WINDOW, RunHistory
from assay.types import UNJUDGED_CAUSES, Metrics, Rollout, Sample

log = logging.getLogger(__name__)
GAP, ROLLOUTS, LARGEST_GAP, FEWEST = "held_out/gap/", "held_out/rollouts/", 0.1, 100
"""Of a family: the share of rollouts that pass only the paid checks, their number, the largest
healthy share, and the rollouts that it takes to judge it."""
GAMED = (
    "{:.1%} of the completions of {} pass all checks that are paid, but not those held out of the"
    " reward: they may be special-casing tests. Look at the programs whose held_out is not 'pass'"
    " in the rollouts, and add checks"
)
EVALUATION_LOST = (
    "the machine lost {:.0f} completions of an evaluation: its pass@1 is of the others, so compare"
    " it with care; report.md says why they were lost"
)
LOST = (
    "the machine lost {:.0f} rollouts; they have no score. If that goes on, lower judge.slots or"
    " engine.kv_cache_tokens"
)
CANNOT = "task {} cannot be judged ({}): {}. Its rollouts have no score; mend it, or leave it out"
NAMED = 50
"""Tasks that cannot be judged of which each has a warning of its own; the others are counted."""
SECONDS = 10.0
"""For one post to the webhook."""


def event_name(name: WarningName, subject: str) -> str:
    """A warning's event: its name, and what it is about where it is of one of many."""
    return f"{name}/{subject}" if subject else name


class HealthTracker(Tracker):
    """Logs a warning when training looks unhealthy over several steps, and appends it as
    `{"step": 12, "event": "entropy_collapse", "text": "entropy collapsed ...", "time": 1.7e9}`.
    Of a warning about one of many, such as a task, the event is `unjudged/TASK`.
    """

    def __init__(self, folder: Path, *, start_step: int, stop_if: Collection[str] = ()) -> None:
        """Delete events after `start_step`; what was warned of before is not repeated."""
        self._folder = folder
        self._run = f"{folder.parent.name}/{folder.name}"
        self._posts: list[Thread] = []
        self._history = RunHistory()
        self._gaps: dict[str, deque[tuple[float, float]]] = {}
        self._stop_if = stop_if
        self._stops: list[str] = []
        self._warned = {
            json.loads(line)["event"] for line in keep_steps(folder / "events.jsonl", start_step)
        }
        for metrics in read_steps(folder / "metrics.jsonl"):
            self._remember(metrics)

    def track(self, step: int, metrics: Metrics) -> None:
        """Look at the metrics of a step that has rollouts, or of an evaluation. Raises
        UnhealthyError after a warning that ends the run.
        """
        if lost := metrics.get("evaluate/lost"):
            self._warn("evaluation_lost", step, EVALUATION_LOST.format(lost))
        if lost := metrics.get("rollout/failed"):
            self._warn("lost", step, LOST.format(lost))
        if self._remember(metrics):
            for rule in RULES:
                is_open = not self._warned.intersection((rule.name, *rule.unless))
                if is_open and (text := rule.check(self._history)):
                    self._warn(rule.name, step, text)
            self._check_gaps(step)
        if self._stops:
            raise UnhealthyError("; ".join(self._stops))

    def _remember(self, metrics: Metrics) -> bool:
        """Add a step to the history, if it has rollouts."""
        if "rollout/failed" not in metrics:
            return False
        numbers = ("learn/advantage_std", "learn/advantage_mean")
        if not any(metrics.get(name, 1.0) for name in numbers):
            metrics = metrics | {"learn/skipped": 1.0}  # a penalty's gradient teaches no task
        self._history.add(metrics)
        for name in metrics:
            if name.startswith(GAP):
                pair = metrics[name], metrics[ROLLOUTS + name.removeprefix(GAP)]
                self._gaps.setdefault(name, deque(maxlen=WINDOW)).append(pair)
        return True

    def _check_gaps(self, step: int) -> None:
        for name, pairs in self._gaps.items():
            family, gap = name.removeprefix(GAP), fmean(gap for gap, _ in pairs)
            enough = len(pairs) == WINDOW and sum(count for _, count in pairs) >= FEWEST
            if enough and gap > LARGEST_GAP:
                self._warn("held_out_gap", step, GAMED.format(gap, family), family)

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Warn of each task that cannot be judged; the judge has logged it."""
        for rollout in chain.from_iterable(groups):
            new = event_name("unjudged", rollout.task.id) not in self._warned
            if rollout.cause in UNJUDGED_CAUSES and new and self._unjudged < NAMED:
                text = CANNOT.format(rollout.task.id, rollout.cause, rollout.failure)
                self._tell("unjudged", step, text, rollout.task.id)

    @property
    def _unjudged(self) -> int:
        return sum(event.startswith("unjudged/") for event in self._warned)

    def _warn(self, name: WarningName, step: int, text: str, subject: str = "") -> None:
        """Log a warning that is new, and tell it."""
        if event_name(name, subject) not in self._warned:
            if name not in self._stop_if:  # else the error says it
                log.warning("step %d: %s: %s", step, name, text)
            self._tell(name, step, text, subject)

    def _tell(self, name: WarningName, step: int, text: str, subject: str = "") -> None:
        """Keep an event, and post it. The run ends after this step where `stop_if` names it."""
        self._warned.add(event_name(name, subject))
        if name in self._stop_if:
            self._stops.append(f"step {step}: {name}: {text}")
        event = append_event(self._folder, step, event_name(name, subject), text)
        if url := os.environ.get("ASSAY_WEBHOOK"):
            message = event | {"text": f"{self._run} step {step}: {text}", "run": self._run}
            self._posts.append(Thread(target=_post, args=(url, message), daemon=True))
            self._posts[-1].start()

    def close(self) -> None:
        """Wait for what is being posted, for SECONDS at most."""
        for post in self._posts:
            post.join(SECONDS)


def _post(url: str, event: dict[str, Any]) -> None:
    """Post an event as JSON; a failure is logged, without the URL, which may hold a key."""
    import httpx2

    try:
        httpx2.post(url, json=event, timeout=SECONDS).raise_for_status()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        log.warning("the webhook in ASSAY_WEBHOOK failed: %s", type(error).__name__)
