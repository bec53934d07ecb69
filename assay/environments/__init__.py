"""What happens between the completions of a rollout: one coroutine per kind, which talks and never sees a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from assay.config.parameters import fitted
from assay.errors import SettingsError
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

    async def check(self, checks: Sequence[Check | Call | Exchange] | None = None) -> Execution:
        """Judge the last reply's program under `checks`; without any under the task's, which the turn is noted with."""

    def show(self, text: str) -> None:
        """What the policy reads before its next reply."""


Environment = Callable[[Talk], Awaitable[None]]
"""Talks until the rollout is over. What is then the last reply is judged, unless it was."""

environments: Registry[Callable[..., Awaitable[None]]] = Registry("environment", "assay.environments")
environment = environments.register


def build(table: Mapping[str, Any]) -> Environment:
    """The environment of a table of settings: `{"name": "repair", "turns": 3}`, its own parameters beside the name.

    Raises SettingsError for an unknown environment or parameter, or a wrong value.
    """
    if not isinstance(name := table.get("name"), str):
        raise SettingsError("`environment.name` is missing: see `assay list`")
    given = {key: value for key, value in table.items() if key != "name"}
    function = environments[name]
    return partial(function, **fitted("environment", name, function, given, "environment"))
