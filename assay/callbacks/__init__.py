"""Callbacks: functions that look at each step of a stage, and may end the stage."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from assay.config.parameters import fitted
from assay.errors import UserError
from assay.registry import Registry, one_line, place_of, plugin_line
from assay.types import Metrics, Rollout

callbacks: Registry[Callable[..., Any]] = Registry("callback", "assay.callbacks")
callback = callbacks.register
"""The decorator of a callback, `def name(history: StageHistory, *, ...) -> str`. It returns why the
stage ends, or an empty text to go on. Parameters after the first one are settings.
"""


@dataclass(slots=True)
class StageHistory:
    """What a callback reads: the metrics of a stage so far, and the rollouts of its newest step."""

    stage: str
    folder: Path
    """Of the stage: metrics.jsonl, events.jsonl, checkpoints."""
    total_steps: int
    """How many steps the stage has if nothing ends it."""
    steps: list[Metrics] = field(default_factory=list)
    """The metrics of each step, the first one first, and its number as `step`. An evaluation's join
    those of its step, and step 0 has one before training."""
    groups: Sequence[Sequence[Rollout]] = ()
    """The newest step's rollouts by group; empty for SFT, evaluations and resumed steps."""

    def add(
        self, step: int, metrics: Metrics, groups: Sequence[Sequence[Rollout]] = ()
    ) -> None:  # fmt: skip
        """Add metrics after `step` steps, and the rollouts that they are of."""
        if not self.steps or self.steps[-1]["step"] != step:
            self.steps.append({"step": step})
        self.steps[-1] |= metrics
        self.groups = groups

    def resume(self, rows: Iterable[Metrics]) -> None:
        """Add the lines of a metrics.jsonl."""
        for row in rows:
            self.add(int(row["step"]), {name: row[name] for name in row if name != "time"})

    def values(self, metric: str) -> list[float]:
        """The finite values of a metric, of the steps that have it."""
        values = (step[metric] for step in self.steps if metric in step)
        return [value for value in values if isfinite(value)]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a stage, each with its parameters."""

    by_name: Mapping[str, Callable[[StageHistory], object]] = field(default_factory=dict)

    def __call__(self, history: StageHistory) -> str:
        """Why the stage ends, as all of them say; empty to go on.

        Raises UserError for a callback that raises, or returns something else than a text.
        """
        answers = {name: self._ask(name, history) for name in self.by_name}
        return "; ".join(f"{name}: {reason}" for name, reason in answers.items() if reason)

    def _ask(self, name: str, history: StageHistory) -> str:
        function: Any = self.by_name[name]
        try:
            reason = function(history)
        except Exception as error:  # a callback is the user's code: they must fix what it raises
            place = "" if plugin_line(error) else place_of(function)
            raise UserError(f"{place}callback {name!r} raised {one_line(error)}; fix it") from error
        if not isinstance(reason, str | None):
            raise UserError(
                f"{place_of(function)}callback {name!r} returned a {type(reason).__name__}; return"
                " why the stage ends as a text, or an empty text to go on"
            )
        return reason or ""


def build(settings: Mapping[str, Mapping[str, Any]]) -> Callbacks:
    """Returns the callbacks in `settings`, as `{"stop_early": {"patience": 20}}`. Raises
    SettingsError for an unknown callback or parameter, or a wrong value.
    """
    return Callbacks({
        name: partial(
            callbacks[name], **fitted("callback", name, callbacks[name], values, "callbacks", name)
        )
        for name, values in settings.items()
    })  # fmt: skip
