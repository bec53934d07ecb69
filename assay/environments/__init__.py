"""What happens between the completions of a rollout: one coroutine per kind, which talks and never
sees a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from assay.config.parameters import fitted
from assay.errors import DataError, SettingsError
from assay.judge import Judge
from assay.registry import Registry
from assay.types import Call, Check, Exchange, Execution, Task


class OutOfRoomError(Exception):
    """Raised by `Talk.reply` when the model's context has no room for more; it ends the rollout."""


class Talk(Protocol):
    """One rollout as its environment sees it."""

    task: Task
    """What is asked."""
    judge: Judge
    """For what the environment wants run beside the checks."""

    async def reply(self, stop: Sequence[str] = ()) -> str:
        """The policy's next words, up to one of `stop`, the limit of tokens or the end it chooses.

        Raises OutOfRoomError, which is no error of the environment's: let it end the rollout.
        """

    @property
    def cut_off(self) -> bool:
        """Whether the last reply ended at the limit of tokens."""

    async def check(self, checks: Sequence[Check | Call | Exchange] | None = None) -> Execution:
        """Judge the last reply's program under `checks`; without any under the task's, which the
        turn is noted with.
        """

    def show(self, text: str, *, held: bool = True) -> None:
        """What the policy reads before its next reply; `held` is false where that tells it that its
        last was wrong.
        """


Script = Callable[[Task, str, str], Generator[str, bool, None]]
"""From a task, a demonstration and a right answer, both as replies, to what the policy is to say,
turn by turn; each `yield` gives back whether what was said there held."""


def visible(task: Task) -> list[Check | Call | Exchange]:
    """The checks that the policy may see."""
    return [check for check in task.checks if not check.hidden]


def no_text(task: Task) -> str:
    """An environment that adds nothing to a task."""
    return ""


@dataclass(frozen=True)
class Environment:
    """Talks until a rollout is over. What is then the last reply is judged, unless it was."""

    name: str
    talk: Callable[..., Awaitable[None]]
    """Called with a Talk."""
    script: Script | None
    """How a demonstration is played through it, what did not hold only being read; None: as one
    reply."""
    lacks: Callable[[Task], str]
    """What a task is without that it needs, in words; empty where it can be used."""
    instructions: Callable[[Task], str]
    """Text that is added to a task's prompt."""
    __doc__: str


environments: Registry[Environment] = Registry("environment", "assay.environments")


def environment_with(
    script: Script | None = None,
    lacks: Callable[[Task], str] = no_text,
    instructions: Callable[[Task], str] = no_text,
) -> Callable[[Callable[..., Awaitable[None]]], Environment]:
    """What registers a coroutine function under its own name, with these."""

    def register(talk: Callable[..., Awaitable[None]]) -> Environment:
        name = talk.__name__
        return environments.add(
            name, Environment(name, talk, script, lacks, instructions, talk.__doc__ or "")
        )

    return register


environment = environment_with()


def build(table: Mapping[str, Any]) -> Environment:
    """The environment of a table of settings: `{"name": "repair", "turns": 3}`, its own parameters
    beside the name.

    Raises SettingsError for an unknown environment or parameter, or a wrong value.
    """
    if not isinstance(name := table.get("name"), str):
        raise SettingsError("`environment.name` is missing: see `assay list`")
    given = {key: value for key, value in table.items() if key != "name"}
    found = environments[name]
    return replace(
        found,
        talk=partial(found.talk, **fitted("environment", name, found.talk, given, "environment")),
    )


def require_fit(environment: Environment, tasks: Sequence[Task], spec: str) -> None:
    """Raises DataError where not one of the tasks, those of `spec`, has what the environment
    needs.
    """
    lacking = [environment.lacks(task) for task in tasks]
    if lacking and all(lacking):
        raise DataError(
            f"environment {environment.name!r} needs {lacking[0]}, and no task of {spec!r} has one;"
            " take other tasks, or environment.name = 'single_turn'"
        )
