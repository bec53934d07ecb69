"""The reward of a rollout: a weighted sum of named terms, one term per file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

from assay.config.parameters import fitted
from assay.errors import SettingsError, UserError
from assay.registry import Registry, one_line
from assay.types import Rollout, Score, Verdict

rewards: Registry[Callable[..., float]] = Registry("reward", "assay.rewards")
reward = rewards.register


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a reward, with its parameters."""

    name: str
    function: Callable[..., float]
    parameters: Mapping[str, object]
    weight: float


def build(settings: Mapping[str, Mapping[str, Any]]) -> Callable[[Rollout], Score]:
    """The weighted sum of the terms in `settings`: `{"tests": {"mode": "fraction"}, "length":
    {"weight": 0.5}}`.

    Each term has a `weight` (default 1) and the keyword parameters of its function. The score's
    parts are the weighted terms by name. Raises SettingsError for an unknown term or parameter, a
    wrong value, a missing parameter without a default, or no term at all.
    """
    if not settings:
        raise SettingsError("`rewards` is empty; name at least one term, such as tests = {}")
    terms = [_term(name, given) for name, given in settings.items()]

    def score(rollout: Rollout) -> Score:
        """Raises UserError for a term that raises or is not a finite number, and ValueError if the
        machine failed the rollout.
        """
        execution = rollout.execution
        if rollout.failure is not None or (execution and execution.verdict is Verdict.INFRA):
            raise ValueError(
                f"{rollout.task.id}: the machine failed this rollout; it is dropped, never scored"
            )
        parts = {term.name: term.weight * _value(term, rollout) for term in terms}
        return Score(total=sum(parts.values()), parts=parts)

    return score


def _value(term: Term, rollout: Rollout) -> float:
    try:
        value = term.function(rollout, **term.parameters)
    except Exception as error:  # a reward is the user's code: they must fix whatever it raises
        raised = f"reward {term.name!r} raised {one_line(error)}"
        raise UserError(f"{raised} (task {rollout.task.id}); fix the reward") from error
    with suppress(Exception):  # any object, whose conversion to a number may raise anything
        if math.isfinite(value):
            return float(value)
    returned = " ".join(shortened(value).split())
    raise UserError(
        f"reward {term.name!r} returned {returned} (task {rollout.task.id}); it must return a"
        " finite number"
    )


def _term(name: str, given: Mapping[str, Any]) -> Term:
    function = rewards[name]
    values = fitted("reward", name, function, given, "rewards", name, common={"weight": float})
    return Term(name, function, weight=values.pop("weight", 1.0), parameters=values)
