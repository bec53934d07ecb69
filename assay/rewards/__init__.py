"""What a rollout is worth: named terms, one per file, weighted and added up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from reprlib import repr as shortened
from types import SimpleNamespace
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict

from assay.config.load import explain
from assay.errors import SettingsError, UserError
from assay.registry import Registry, one_line
from assay.types import Rollout, Score, Verdict

rewards: Registry[Callable[..., float]] = Registry("reward", "assay.rewards")
reward = rewards.register

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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
    weighted terms by name. Raises SettingsError for an unknown term or parameter, a wrong value, a parameter without a
    default that is not given, or no term at all.
    """
    if not settings:
        raise SettingsError("`rewards` is empty; name at least one term, such as tests = {}")
    terms = [_term(name, given) for name, given in settings.items()]

    def score(rollout: Rollout) -> Score:
        """Raises UserError for a term that raises or is no finite number, ValueError where the machine failed."""
        if rollout.failure is not None or any(turn.execution.verdict is Verdict.INFRA for turn in rollout.turns):
            raise ValueError(f"{rollout.task.id}: the machine failed this rollout; it is dropped, never scored")
        parts = {term.name: term.weight * _value(term, rollout) for term in terms}
        return Score(total=sum(parts.values()), parts=parts)

    return score


def _value(term: Term, rollout: Rollout) -> float:
    try:
        value = term.function(rollout, **term.parameters)
    except Exception as error:  # a reward is the user's code: whatever it raises is theirs to mend
        raised = f"reward {term.name!r} raised {one_line(error)}"
        raise UserError(f"{raised} (task {rollout.task.id}); mend it") from error
    with suppress(Exception):  # it may be anything, and turn itself into a number in any way
        if math.isfinite(value):
            return float(value)
    returned = " ".join(shortened(value).split())
    raise UserError(
        f"reward {term.name!r} returned {returned} (task {rollout.task.id}); it must return a finite number"
    )


def _term(name: str, given: Mapping[str, Any]) -> Term:
    function = rewards[name]
    own = list(inspect.signature(function).parameters.values())[1:]
    by_name = {parameter.name: parameter for parameter in own if parameter.kind in NAMED}
    if "weight" in by_name:
        raise SettingsError(f"reward {name!r} has a parameter `weight`, which every term has already; rename it")
    kinds: dict[str, Any] = {"weight": NotRequired[float]}
    for parameter in by_name.values():
        kind = _kind(name, function, parameter) if parameter.name in given else Any
        kinds[parameter.name] = kind if parameter.default is parameter.empty else NotRequired[kind]
    values = _fitted(name, given, kinds)
    return Term(name, function, weight=values.pop("weight", 1.0), parameters=values)


def _kind(name: str, function: Callable[..., float], parameter: inspect.Parameter) -> Any:
    """The parameter's annotation, resolved alone: others may name what is imported for type checkers only."""
    if parameter.annotation is parameter.empty:
        return Any
    alone: Any = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        kind = get_type_hints(alone, getattr(inspect.unwrap(function), "__globals__", {}))["it"]
        TypeAdapter(kind)
    except Exception as error:  # an annotation is the user's code: whatever it raises is theirs to mend
        where = f"reward {name!r}: the annotation of {parameter.name!r}"
        raise SettingsError(
            f"{where} cannot be used ({one_line(error)}); write a type that TOML holds and that is there at run time"
        ) from error
    return kind


def _fitted(name: str, given: Mapping[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """`given`, as TOML holds it, as `kinds` ask for it: an array becomes a tuple, a string a path; 1 is not true."""
    make: Any = TypedDict
    table = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))(make(name, kinds))
    try:
        return dict(TypeAdapter(table).validate_json(to_json(given)))
    except ValidationError as error:
        raise SettingsError(explain(error, lambda _: kinds, "rewards", name)) from None
