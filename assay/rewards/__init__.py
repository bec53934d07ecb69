"""The reward of a rollout: a weighted sum of named terms, one term per file."""

import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from reprlib import repr as shortened
from typing import Any

from assay.config.parameters import fitted
from assay.errors import RolloutLostError, SettingsError, UserError
from assay.judge import AnyJudge
from assay.registry import Registry, one_line, place_of, plugin_line
from assay.sync import together
from assay.types import Cause, Rollout, Score

BatchFunction = Callable[[Sequence[Rollout]], Awaitable[Sequence[float | RolloutLostError]]]
"""Gives one number for each rollout of a batch, or the error for a rollout that the machine lost.
Several batches may be scored at once."""

rewards: Registry[Callable[..., Any]] = Registry("reward", "assay.rewards")
reward = rewards.register
"""The decorator of a reward. Its own parameters come after the first one.

| form | what it is |
| --- | --- |
| `def name(rollout)` | returns the number of one rollout |
| `async def name(rollouts)` | a BatchFunction |
| `async def name(judge)` that yields once | yields a BatchFunction: opens before, closes after |
"""

LARGEST = 1e12
"""The largest size of a weighted term. The squares of much larger ones overflow in float32."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a reward, with its weight."""

    name: str
    function: Callable[..., Any]
    """In any of the three forms, with its parameters bound."""
    weight: float


@dataclass(frozen=True, slots=True)
class Reward:
    """A weighted sum of terms."""

    terms: Sequence[Term]
    opened: dict[str, BatchFunction] = field(default_factory=dict)
    """What the terms that open something have yielded, by the names of the terms."""

    @asynccontextmanager
    async def open(self, judge: AnyJudge) -> AsyncIterator[None]:
        """Opens what terms have to open, and closes it in the end. `judge` is the run's own, for
        terms that run tools. Errors of the terms pass through.
        """
        async with AsyncExitStack() as closing:
            for term in [term for term in self.terms if inspect.isasyncgenfunction(term.function)]:
                opening: Any = asynccontextmanager(term.function)
                self.opened[term.name] = await closing.enter_async_context(opening(judge))
            yield

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts with their scores. All terms are asked at once, each for the whole batch.

        A rollout with a failure stays as it is; one for which a term raises RolloutLostError gets a
        failure. Raises UserError for a term that raises anything else, or whose number is not
        finite or above LARGEST.
        """
        ready = [rollout for rollout in rollouts if rollout.failure is None]
        columns = await together(self._ask(term, ready) for term in self.terms if ready)
        rows = zip(*columns, strict=True) if columns else repeat(())
        return [
            self._scored(rollout, next(rows)) if rollout.failure is None else rollout
            for rollout in rollouts
        ]

    async def _ask(self, term: Term, rollouts: Sequence[Rollout]) -> list[float | RolloutLostError]:
        """The numbers of one term, before its weight."""
        function: Any = self.opened.get(term.name, term.function)
        batched = term.name in self.opened or inspect.iscoroutinefunction(function)
        values: list[float | RolloutLostError] = []
        for batch in [rollouts] if batched else [[rollout] for rollout in rollouts]:
            try:
                numbers = list(await function(batch)) if batched else [function(batch[0])]
                if len(numbers) != len(batch):
                    raise ValueError(f"{len(numbers)} numbers for {len(batch)} rollouts")
            except RolloutLostError as lost:
                numbers = [lost] * len(batch)
            except Exception as error:  # a reward is the user's code: they must fix what it raises
                place = "" if plugin_line(error) else place_of(term.function)
                raised = f"{place}reward {term.name!r} raised {one_line(error)}"
                advice = "fix the reward"
                if inspect.iscoroutinefunction(function):
                    advice += ": an `async def` gets a list of rollouts and returns their numbers"
                raise UserError(f"{raised} (task {batch[0].task.id}); {advice}") from error
            values += [_number(term, *pair) for pair in zip(numbers, batch, strict=True)]
        return values

    def _scored(self, rollout: Rollout, values: Sequence[float | RolloutLostError]) -> Rollout:
        parts: dict[str, float] = {}
        for term, value in zip(self.terms, values, strict=True):
            if isinstance(value, RolloutLostError):
                cause = value.cause or Cause.MACHINE
                return replace(rollout, failure=str(value), cause=cause)
            parts[term.name] = term.weight * value
        return replace(rollout, score=Score(sum(parts.values()), parts))


def term(name: str, settings: Mapping[str, Any]) -> Term:
    """Returns one term. Raises SettingsError as `build`."""
    function = rewards[name]
    values = fitted("reward", name, function, settings, "rewards", name, common={"weight": float})
    weight = values.pop("weight", 1.0)
    return Term(name, partial(function, **values), weight)


def build(settings: Mapping[str, Mapping[str, Any]]) -> Reward:
    """Returns the weighted sum of the terms in `settings`, as `{"tests": {"mode": "fraction"},
    "length": {"weight": 0.5}}`.

    Each term has a `weight` (default 1) and the keyword parameters of its function. The score's
    parts are the weighted terms by name. Raises SettingsError for an unknown term or parameter, a
    wrong value, a missing parameter without a default, or no term at all.
    """
    if not settings:
        raise SettingsError("`rewards` is empty; name at least one term, such as tests = {}")
    return Reward([term(name, parameters) for name, parameters in settings.items()])


def _number(term: Term, value: Any, rollout: Rollout) -> float | RolloutLostError:
    if isinstance(value, RolloutLostError):
        return value
    with suppress(Exception):  # any object, whose conversion to a number may raise anything
        if math.isfinite(value) and abs(term.weight * float(value)) <= LARGEST:
            return float(value)
    returned = " ".join(shortened(value).split())
    raise UserError(
        f"{place_of(term.function)}reward {term.name!r} returned {returned} (task"
        f" {rollout.task.id}); it must return a finite number, with its weight of at most"
        f" {LARGEST:g}"
    )
