"""What happens between the completions of a rollout: one coroutine per environment, which sees text
and never tokens.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, Literal, Protocol

from assay.config.parameters import fitted
from assay.errors import DataError, SettingsError
from assay.judge import AnyJudge, LocalJudge
from assay.registry import Registry
from assay.tools import Tool
from assay.types import AnyCheck, Execution, Reported, RepositoryTests, Task, ToolCall


class OutOfRoomError(Exception):
    """The model's context is full. `Conversation.reply` raises it, and it ends the rollout."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What an agent may ask of the policy in one rollout, and what of it is learned."""

    calls: int
    """Replies, after which calls get a polite answer that is no reply of the policy."""
    seconds: float
    """Time from the opening of the endpoint."""
    tokens: int | None = None
    """Sampled tokens after which no call is sampled."""
    paid_roots: Literal["first", "all"] = "first"
    """Learn the conversations that begin with the messages of the agent's first one, or all."""
    at_once: int = 128
    """Rollouts of a run whose agents run at once; the others wait, before their time begins."""
    is_polite: bool = True
    """Whether calls beyond them get a polite text, and not a refusal: an agent that scores what it
    reads would take the text for a reply of the policy."""


class PolicyEndpoint(Protocol):
    """An endpoint at which an agent calls the policy in one rollout."""

    url: str
    """Of an OpenAI-compatible API, up to /v1; the key is not in it."""
    key: str
    """Nobody can guess it. Whoever has it samples for this rollout."""

    def begin(self) -> None:
        """Begins the time of the limits anew, because the agent starts now."""

    @property
    def received(self) -> int:
        """Returns the number of calls so far, answered or not."""

    @property
    def learned(self) -> int:
        """Returns the number of replies so far that are to be learned."""

    @property
    def refusal(self) -> str:
        """Says why the last call was refused, if every call so far was one that the policy cannot
        be asked. It is empty otherwise.
        """

    @property
    def failure(self) -> BaseException | None:
        """Says why the last call failed that no retry made good. It is None if none did."""


class Conversation(Protocol):
    """One rollout, as its environment sees it."""

    task: Task
    """The task to solve."""
    judge: AnyJudge
    """Judges what the environment asks it to, besides the checks."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Returns what the model may call."""

    async def reply(self, stop: Sequence[str] = ()) -> str:
        """Returns the model's next reply. It ends at one of `stop`, at the token limit, or where
        the model ends it.

        Raises OutOfRoomError when the context is full. The environment must not catch it.
        """

    @property
    def calls(self) -> Sequence[ToolCall]:
        """Returns the calls of the environment's tools in the last reply. They include those that
        cannot be run, whose status and detail say why.
        """

    @property
    def cut_off(self) -> bool:
        """Says whether the last reply ended at the token limit."""

    async def check(self, checks: Sequence[AnyCheck] | None = None) -> Execution:
        """Judges the program in the last reply under `checks`, by default under the task's. The
        turn records the verdict of the task's checks.
        """

    def show(self, text: str, *, correct: bool = True) -> None:
        """Shows a text to the model before its next reply. `correct` is false if the text says that
        the last reply was wrong.
        """

    def drop_reply(self, text: str) -> None:
        """Shows a text to the model in place of the last reply, which leaves the conversation. The
        policy still learns from that reply, as a sample of its own, but SFT does not.
        """

    def show_results(self, results: Sequence[str], *, correct: bool = True) -> None:
        """Shows what each of `calls` gave, in their order."""

    def submit(self, program: str) -> None:
        """Sets the program to judge, in place of the one in the last reply."""

    def endpoint(self, limits: CallLimits) -> AbstractAsyncContextManager[PolicyEndpoint]:
        """Opens an endpoint at which another program asks for this rollout's replies. It ends with
        the block, and the replies are the rollout's turns.
        """


class LocalConversation(Conversation, Protocol):
    """A rollout of an environment that runs programs of its own. Where services judge, an
    environment whose coroutine asks for it is refused before a run starts.
    """

    judge: LocalJudge
    """Runs what the environment needs to run, besides the checks."""


class ReportedConversation(Conversation, Protocol):
    """A rollout of which an agent may report the reward. Tasks that leave their reward to an agent
    are refused in an environment whose coroutine does not ask for it.
    """

    def report(self, reward: float) -> None:
        """Sets the reward of the rollout as its agent reports it. No check is judged. A reward of
        at least 1 counts as passed.
        """


Script = Callable[[Task, str, str], Generator[str | ToolCall, bool, None]]
"""How a demonstration is played. From a task, a demonstration and a right answer, both as replies,
it yields the model's replies turn by turn, a tool call where the reply is one; each `yield` returns
whether the reply was correct."""


def repository_tests(task: Task) -> RepositoryTests | None:
    """Returns the tests of a task that is a repository, and None for any other."""
    return next((check for check in task.checks if isinstance(check, RepositoryTests)), None)


def reported(task: Task) -> Reported | None:
    """Returns what an agent that reports the task's reward is given, and None where checks
    decide.
    """
    return next((check for check in task.checks if isinstance(check, Reported)), None)


def missing_repository(task: Task) -> str:
    """Returns what a task lacks for an environment that works on repositories."""
    return "" if repository_tests(task) else "a repository"


def visible(task: Task) -> list[AnyCheck]:
    """Returns the checks that the model may see."""
    return [check for check in task.checks if not check.hidden]


def no_tools() -> tuple[Tool, ...]:
    """The default of `more_tools`: none."""
    return ()


def no_text(task: Task) -> str:
    """The default of `missing` and `instructions`: nothing."""
    return ""


@dataclass(frozen=True)
class Environment:
    """Runs a conversation to its end. The last reply is then judged, unless it was already."""

    name: str
    run: Callable[..., Awaitable[None]]
    """Called with a Conversation, and with the environment's own parameters."""
    script: Script | None
    """How SFT plays a demonstration; None: as a single reply."""
    missing: Callable[..., str]
    """What the environment needs and a task does not have, as a noun; empty if it has all. Called
    as `instructions`. Raises DataError for a task that must not be among its tasks."""
    instructions: Callable[..., str]
    """Text that is added to a task's prompt; called with a task, and with those parameters of the
    environment's that it has too."""
    tools: tuple[Tool, ...]
    """What the model may call."""
    request: str
    """The template of a task's prompt, where the settings have none; empty for that of the task's
    language."""
    more_tools: Callable[..., tuple[Tool, ...]]
    """What else the model may call where the settings say so; called once, as `instructions`, but
    without a task."""
    __doc__: str

    @property
    def tool_calls(self) -> Literal["template", "text"]:
        """Says how the model calls tools: as its chat template writes it, or as text. It is a
        parameter of the environment.
        """
        return self.parameters["tool_calls"] if self.tools else "text"

    @property
    def runs_programs(self) -> bool:
        """Says whether it needs a judge of this process, because it asks for a
        LocalConversation.
        """
        return self._asks_for(LocalConversation)

    @property
    def takes_reports(self) -> bool:
        """Says whether its agents report rewards, because it asks for a ReportedConversation."""
        return self._asks_for(ReportedConversation)

    def _asks_for(self, kind: type) -> bool:
        run = self.run.func if isinstance(self.run, partial) else self.run
        hints = [parameter.annotation for parameter in signature(run).parameters.values()]
        hint = hints[0] if hints else None
        if isinstance(hint, str):  # perhaps of an import for type checkers alone
            hint = getattr(run, "__globals__", {}).get(hint, hint.rpartition(".")[2])
        return hint == kind.__name__ or kind in getattr(hint, "__mro__", ())

    @property
    def parameters(self) -> dict[str, Any]:
        """Returns its parameters by name, as they are set."""
        _, *parameters = signature(self.run).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    @property
    def turns(self) -> int:
        """Returns the most replies of a rollout. That is its parameter `turns`, and 1
        without it.
        """
        return int(self.parameters.get("turns", 1))


environments: Registry[Environment] = Registry("environment", "assay.environments")


def environment_with(
    script: Script | None = None,
    missing: Callable[..., str] = no_text,
    instructions: Callable[..., str] = no_text,
    tools: tuple[Tool, ...] = (),
    request: str = "",
    more_tools: Callable[..., tuple[Tool, ...]] = no_tools,
) -> Callable[[Callable[..., Awaitable[None]]], Environment]:
    """Returns a decorator that registers a coroutine function as an environment, under its own
    name. With `tools` it has a parameter `tool_calls`.
    """

    def register(run: Callable[..., Awaitable[None]]) -> Environment:
        """Registers a coroutine that takes a Conversation as an environment. Settings name it by
        the function's name.
        """
        name, doc = run.__name__, run.__doc__ or ""
        record = Environment(
            name, run, script, missing, instructions, tools, request, more_tools, doc
        )
        return environments.add(name, record)

    return register


environment = environment_with()


def build(table: Mapping[str, Any], services: Sequence[str] = ()) -> Environment:
    """Returns the environment of a table of settings: `{"name": "repair", "turns": 3}`. services:
    those of `judge.servers`, which only judge.

    Raises SettingsError for an unknown environment or parameter, or a wrong value, and for an
    environment that needs a judge of this process where services judge.
    """
    if not isinstance(name := table.get("name"), str):
        raise SettingsError("`environment.name` is missing: see `assay list`")
    parameters = {key: value for key, value in table.items() if key != "name"}
    base = environments[name]
    if services and base.runs_programs:
        raise SettingsError(
            f"the environment {name!r} runs programs in this process's judge, and the services of"
            " `judge.servers` only judge; leave `judge.servers` out, or take another environment"
        )
    fitting = fitted("environment", name, base.run, parameters, "environment")
    built = replace(base, run=partial(base.run, **fitting))
    tools = (*base.tools, *base.more_tools(**_shared(built, base.more_tools)))
    missing, instructions = (_bound(built, each) for each in (base.missing, base.instructions))
    return replace(built, tools=tools, missing=missing, instructions=instructions)


def _bound(environment: Environment, function: Callable[..., str]) -> Callable[..., str]:
    """A function with those parameters of an environment's that it has too."""
    shared = _shared(environment, function)
    return partial(function, **shared) if shared else function


def _shared(environment: Environment, function: Callable[..., Any]) -> dict[str, Any]:
    """Those parameters of an environment that a function has too."""
    names = signature(function).parameters
    return {key: value for key, value in environment.parameters.items() if key in names}


def require_fit(environment: Environment, tasks: Sequence[Task], spec: str) -> None:
    """Raises DataError if no task of `spec` has what the environment needs, for one that must not
    be among its tasks, and for one that leaves its reward to an agent where the environment takes
    none.
    """
    left = [] if environment.takes_reports else [task.id for task in tasks if reported(task)]
    if left:
        raise DataError(
            f"task {left[0]!r} of {spec!r} has a check `task_data`, so an agent reports its reward,"
            f" and the environment {environment.name!r} takes no report; use other tasks, or"
            " environment.name = 'program'"
        )
    missing = [environment.missing(task) for task in tasks]
    if missing and all(missing):
        raise DataError(
            f"environment {environment.name!r} needs {missing[0]}, and no task of {spec!r} has one;"
            " use other tasks, or environment.name = 'single_turn'"
        )
