"""What a rollout is worth: named terms, one per file, weighted and added up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from assay.errors import SettingsError, UserError
from assay.registry import Registry, decorator, suggest
from assay.types import Rollout, Score, Verdict

rewards: Registry[Callable[..., float]] = Registry("reward", "assay.rewards")
reward = decorator(rewards)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a reward, its parameters filled in."""

    name: str
    function: Callable[..., float]
    parameters: Mapping[str, object]
    weight: float


def build(settings: Mapping[str, Mapping[str, Any]]) -> Callable[[Rollout], Score]:
    """The weighted sum of the terms in `settings`: `{"tests": {"mode": "fraction"}, "length": {"weight": 0.5}}`.

    Each term has a `weight` (1 unless given) and the keyword parameters of its function. The score's parts are the
    weighted terms by name. Raises SettingsError for an unknown term or parameter, a wrong value, or no term at all.
    """
    if not settings:
        raise SettingsError("`rewards` is empty; name at least one term, such as tests = {}")
    terms = [_term(name, given) for name, given in settings.items()]

    def score(rollout: Rollout) -> Score:
        """Raises UserError when a term is not a finite number, ValueError for a rollout that the machine failed."""
        if rollout.failure is not None or any(turn.execution.verdict is Verdict.INFRA for turn in rollout.turns):
            raise ValueError(f"{rollout.task.id}: the machine failed this rollout; it is dropped, never scored")
        parts = {term.name: term.weight * _value(term, rollout) for term in terms}
        return Score(total=sum(parts.values()), parts=parts)

    return score


def _value(term: Term, rollout: Rollout) -> float:
    value = term.function(rollout, **term.parameters)
    if not math.isfinite(value):
        raise UserError(f"reward {term.name!r} is {value} for task {rollout.task.id}; it must be a finite number")
    return float(value)


def _term(name: str, given: Mapping[str, Any]) -> Term:
    function = rewards[name]
    hints = get_type_hints(function)
    known = list(inspect.signature(function).parameters)[1:]
    kinds = {"weight": float, **{parameter: hints.get(parameter, Any) for parameter in known}}
    for parameter, value in given.items():
        where = f"rewards.{name}.{parameter}"
        if parameter not in kinds:
            raise SettingsError(f"unknown setting {where!r}; {suggest(parameter, list(kinds))}")
        if not _fits(value, kinds[parameter]):
            raise SettingsError(f"{where} = {value!r} does not fit; it takes {_described(kinds[parameter])}")
    parameters = {key: value for key, value in given.items() if key != "weight"}
    return Term(name, function, parameters, weight=float(given.get("weight", 1.0)))


def _fits(value: object, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, get_origin(kind) or kind)


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(repr(value) for value in get_args(kind))
    words = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a string"}
    return words.get(kind, str(kind))
