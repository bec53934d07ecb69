"""Choices of tasks for RL: one file is one choice. It says with which chance a task is taken when
its turn comes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.config.parameters import fitted
from assay.errors import SettingsError
from assay.registry import Registry
from assay.rollout.attempt import PromptedTask
from assay.rollout.task_rates import TaskRates


@dataclass(frozen=True, slots=True)
class TaskPool:
    """The tasks that a stage may train on."""

    tasks: Sequence[PromptedTask]
    """A task may be there several times, where its set has a large weight."""
    rates: TaskRates
    """What their visits gave; it changes with each step."""


Chance = Callable[[int, int], float]
"""From a task's place in the pool and a group's number, from 0, to the chance, in [0, 1], that the
group is of that task if it is the task's turn. It must depend on nothing but these, the pool and
its rates: then a resumed run chooses the same."""
Choice = Callable[[TaskPool], Chance]
"""What a plug-in is, with its parameters as keywords."""

choices: Registry[Callable[..., Chance]] = Registry("choice", "assay.choices")
choice = choices.register


def build(table: Mapping[str, Any]) -> Choice:
    """The choice of a table of settings: `{"name": "retire", "high": 0.9}`; an empty one is
    uniform. Raises SettingsError for an unknown choice or parameter, or a wrong value.
    """
    if not isinstance(name := table.get("name", "uniform"), str):
        raise SettingsError("`tasks.choice.name` must be text in quotes")
    parameters = {key: value for key, value in table.items() if key != "name"}
    make = choices[name]
    return partial(make, **fitted("choice", name, make, parameters, "tasks", "choice"))


def require_shares(name: str, **values: float) -> None:
    """Raises SettingsError for a parameter of the choice `name` that is outside of [0, 1]."""
    for parameter, value in values.items():
        if not 0 <= value <= 1:
            raise SettingsError(
                f"`tasks.choice.{parameter}` of {name} is {value:g}; write a share from 0 to 1"
            )
