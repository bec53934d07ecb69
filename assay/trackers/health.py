"""Warnings while a stage trains: what goes wrong, and which setting helps. Each is given once, kept
as an event in events.jsonl, and posted to the webhook in the environment variable ASSAY_WEBHOOK.
"""

import json
import logging
import os
from collections import deque
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

from assay.trackers.base import Tracker
from assay.trackers.jsonl import append_event, keep_steps
from assay.types import UNJUDGED_CAUSES, Metrics, Rollout, Sample

log = logging.getLogger(__name__)
STEPS = 8
"""A warning is about the mean of so many steps, so that one bad step is no alarm."""
SHARES = {
    "learn/skipped": (
        0.75,
        "{:.0%} of the samples have no gradient: the rewards of their groups are equal (zero"
        " variance); use easier or harder tasks, a larger rollout.group_size, or"
        " algorithm.zero_variance_groups = 'resample'",
    ),
    "rollout/truncated": (
        0.25,
        "{:.0%} of the completions are cut off at rollout.max_tokens; raise it, or reward"
        " shorter completions",
    ),
}
"""The largest healthy mean of a metric, and the warning above it."""
UNJUDGED = "rollout/unjudged/"
"""Starts the name of the event of a task that cannot be judged."""
GAP, ROLLOUTS, LARGEST_GAP, FEWEST = "held_out/gap/", "held_out/rollouts/", 0.1, 100
"""Of a family: the share of rollouts that pass only the paid checks, their number, the largest
healthy share, and the rollouts that it takes to judge it."""
GAMED = (
    "{:.1%} of the completions of {} pass all checks that are paid, but not those held out of the"
    " reward: they may be special-casing tests. Look at the programs whose held_out is not 'pass'"
    " in the rollouts, and add checks"
)
ENTROPY, LOWEST_ENTROPY = "learn/entropy", 0.1
"""Entropy below this share of its mean over the first steps has collapsed."""
COLLAPSED = (
    "entropy collapsed from {:.3g} to {:.3g}: completions are nearly the same; lower optimizer.lr,"
    " or raise algorithm.kl or rollout.temperature"
)
SPREAD, LARGEST_SPREAD = "learn/importance_weight_spread", 0.2
KL_ENGINE, TOKENS_AGREE = "learn/kl_engine", 0.01
"""Up to here tokens' weights spread by less than 0.15, so a larger spread is of completions."""
PRODUCTS = (
    "importance sampling weights are off 1 by {:.2f} on average, although engine and learner agree"
    " on tokens (learn/kl_engine {:.2g}): over a whole completion rounding adds up, and the"
    " gradient follows it; set algorithm.importance_sampling = 'token_truncate'"
)
DISAGREE = (
    "importance sampling weights are off 1 by {:.2f} on average, because engine and learner give"
    " tokens different probabilities (learn/kl_engine {:.2g}): lower rollout.max_staleness, and use"
    " the dtype of the policy in the engine"
)
EVALUATION_LOST = (
    "the machine lost {:.0f} completions of an evaluation: its pass@1 is of the others, so compare"
    " it with care; report.md says why they were lost"
)
LOST = (
    "the machine lost {:.0f} rollouts; they have no score. If that goes on, lower judge.slots or"
    " engine.kv_cache_tokens"
)
ALONE = (ENTROPY, SPREAD, KL_ENGINE)
"""Metrics that rules of their own watch."""
CANNOT = "task {} cannot be judged ({}): {}. Its rollouts have no score; mend it, or leave it out"
NAMED = 50
"""Tasks that cannot be judged of which each has a warning of its own; the others are counted."""


SECONDS = 10.0
"""For one post to the webhook."""


class HealthTracker(Tracker):
    """Logs a warning when training looks unhealthy over several steps, and appends it as
    `{"step": 12, "event": "learn/entropy", "text": "entropy collapsed ...", "time": 1.7e9}`.
    """

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Delete events after `start_step`; what was warned of before is not repeated."""
        self._folder = folder
        self._run = f"{folder.parent.name}/{folder.name}"
        self._posts: list[Thread] = []
        self._recent: dict[str, deque[float]] = {}
        self._first_entropy: float | None = None
        self._warned = {
            json.loads(line)["event"] for line in keep_steps(folder / "events.jsonl", start_step)
        }

    def track(self, step: int, metrics: Metrics) -> None:
        """Look at the metrics of a step that has rollouts, or of an evaluation."""
        if lost := metrics.get("evaluate/lost"):
            self._warn("evaluate/lost", step, EVALUATION_LOST.format(lost))
        if "rollout/failed" not in metrics:
            return
        if lost := metrics["rollout/failed"]:
            self._warn("rollout/failed", step, LOST.format(lost))
        if not metrics.get("learn/advantage_std", 1.0):
            metrics = metrics | {"learn/skipped": 1.0}  # a penalty's gradient teaches no task
        watched = [key for key in metrics if key in {*SHARES, *ALONE} or key[:9] == "held_out/"]
        for name in watched:
            self._recent.setdefault(name, deque(maxlen=STEPS)).append(metrics[name])
        for name in watched:
            if len(recent := self._recent[name]) == STEPS:
                self._check(name, step, fmean(recent))

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Warn of each task that cannot be judged; the judge has logged it."""
        for rollout in chain.from_iterable(groups):
            name = f"{UNJUDGED}{rollout.task.id}"
            new = rollout.cause in UNJUDGED_CAUSES and name not in self._warned
            if new and sum(event.startswith(UNJUDGED) for event in self._warned) < NAMED:
                text = CANNOT.format(rollout.task.id, rollout.cause, rollout.failure)
                self._tell(name, step, text)

    def _check(self, name: str, step: int, mean: float) -> None:
        if name in SHARES and mean > SHARES[name][0]:
            self._warn(name, step, SHARES[name][1].format(mean))
        if name.startswith(GAP) and mean > LARGEST_GAP:
            family = name.removeprefix(GAP)
            if sum(self._recent[ROLLOUTS + family]) >= FEWEST:
                self._warn(name, step, GAMED.format(mean, family))
        if name == SPREAD and mean > LARGEST_SPREAD:
            apart = fmean(self._recent[KL_ENGINE])
            text = PRODUCTS if apart < TOKENS_AGREE else DISAGREE
            self._warn(name, step, text.format(mean, apart))
        if name == ENTROPY:
            self._first_entropy = first = self._first_entropy or mean
            if mean < LOWEST_ENTROPY * first:
                self._warn(name, step, COLLAPSED.format(first, mean))

    def _warn(self, name: str, step: int, text: str) -> None:
        if name not in self._warned:
            log.warning("step %d: %s", step, text)
            self._tell(name, step, text)

    def _tell(self, name: str, step: int, text: str) -> None:
        """Keep an event, and post it."""
        self._warned.add(name)
        event = append_event(self._folder, step, name, text)
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
