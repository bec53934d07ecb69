"""One attempt at a task, turn by turn: sample a completion, extract the program, judge."""

import logging
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from assay import extract
from assay.agents.records import recorded_calls
from assay.agents.server import PolicyServer, SessionAddress
from assay.agents.session import CallSession, ServedPolicy
from assay.agents.tree import LEARNED, balance
from assay.engines.base import Engine, GenerationRequest, Sampling
from assay.environments import CallLimits, Environment, OutOfRoomError
from assay.errors import DataError, MachineError, RolloutLostError, UserError
from assay.files import encodable
from assay.judge import AnyJudge, Job
from assay.maths.seeds import derive
from assay.rewards import Reward
from assay.rollout.meter import Meter
from assay.rollout.prompter import Prompter
from assay.tools import Tool
from assay.types import (
    AgentCalls,
    AnyCheck,
    Cause,
    Completion,
    Execution,
    Rollout,
    Task,
    ToolCall,
    Turn,
    Verdict,
)

T = TypeVar("T")
log = logging.getLogger(__name__)
FULL_REWARD = 1.0
"""The reported reward from which a rollout counts as passed."""


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """What every rollout needs: engine, judge, chat format, environment and reward."""

    engine: Engine
    judge: AnyJudge
    prompter: Prompter
    environment: Environment
    reward: Reward
    sampling: Sampling
    context_length: int | None = None
    """Longest sequence of the model, in tokens."""
    scores_turns: bool = False
    """Whether each judged turn gets a score, not only the last one."""
    generation: Meter = field(default_factory=Meter)
    """Time of the engine; counts sampled tokens."""
    judging: Meter = field(default_factory=Meter)
    """Time of the judge."""
    held_out: Mapping[str, Task] = field(default_factory=dict)
    """By the id of a task, the same task with the checks held out of its reward."""
    server: PolicyServer = field(default_factory=PolicyServer)
    """Serves the policy to agents of environments that open an endpoint."""


@dataclass(frozen=True, slots=True)
class PromptedTask:
    """A task, its prompt in tokens, and the strings that end a completion."""

    task: Task
    prompt: tuple[int, ...]
    stop: tuple[str, ...] = ()


def make_prompts(
    tasks: Sequence[Task], prompter: Prompter, max_tokens: int, context_length: int | None,
    too_long: str = "refuse",
) -> list[PromptedTask]:  # fmt: skip
    """The tasks with their prompts.

    Raises DataError for a prompt that leaves no room for `max_tokens` in the context, or drops it.
    """
    limit = context_length - max_tokens if context_length else None
    prompted = [PromptedTask(task, prompter.prompt(task), prompter.stop(task)) for task in tasks]
    return within(
        limit, [(len(row.prompt), row.task.id, row) for row in prompted], too_long,
        f"a prompt of {{}} tokens: with max_tokens = {max_tokens}, which rollout and"
        f" evaluate may lower, that is more than the model's context of {context_length}",
    )  # fmt: skip


def within(
    limit: int | None, rows: Sequence[tuple[int, str, T]], too_long: str, what: str
) -> list[T]:
    """The rows, each with its tokens and the id of its task, that have up to `limit` tokens; a
    warning counts the others.

    Raises DataError, which says `what` the longest has, unless the others are to `drop`.
    """
    fitting = [row for size, _, row in rows if limit is None or size <= limit]
    if len(fitting) == len(rows):
        return fitting
    size, name, _ = max(rows, key=lambda row: row[0])
    longest = f"task {name!r} has {what.format(size)}"
    if too_long == "refuse" or not fitting:
        raise DataError(
            f"{longest}; shorten it or leave it out (in training, tasks.too_long = 'drop' leaves"
            " out all that are too long)"
        )
    log.warning("%d of %d are left out: %s", len(rows) - len(fitting), len(rows), longest)
    return fitting


async def attempt(prompted_task: PromptedTask, context: RolloutContext, seed: int) -> Rollout:
    """One rollout of a task, not yet scored; all its random numbers follow from `seed`.

    A failure of the machine, and a task that cannot be judged, give a rollout with a `failure`.
    Raises UserError for an environment
    that ends before it asks for a reply, and SandboxError when the judge gives up.
    """
    task, talk = prompted_task.task, Dialogue(prompted_task, context, seed)
    try:
        with suppress(OutOfRoomError):
            await context.environment.run(talk)
        if not talk.turns:
            raise UserError(
                f"environment {context.environment.name!r} asked for no reply (task {task.id});"
                " fix the environment: it must call reply() at least once"
            )
        if talk.turns[-1].execution is None:
            await talk.check()
    except RolloutLostError as lost:
        cause = lost.cause or Cause.MACHINE
        return replace(talk.rollout, failure=str(lost), cause=cause)
    return talk.rollout


def _remedy(version: int) -> str:
    """What helps where the weights after step `version` give no finite log-probability."""
    if version:
        return f" with the weights after step {version}; lower optimizer.lr"
    return (
        " before the first step; compute in float32 where policy.dtype or engine.dtype is"
        " bfloat16, or take another model or engine"
    )


class Dialogue:
    """A rollout in progress, as its environment sees it."""

    def __init__(self, prompted_task: PromptedTask, context: RolloutContext, seed: int) -> None:
        self.task = prompted_task.task
        self.prompted_task = prompted_task
        self.judge = context.judge
        self.context = context
        self.seed = seed
        self.started = time.monotonic()
        self.turns: list[Turn] = []
        self.reported: float | None = None
        self.unlearned: Mapping[str, int] = {}
        """By the reason, how many tokens were sampled at its endpoint that are not learned."""
        self.agent_calls = AgentCalls()
        """The calls at its endpoint."""

    @property
    def rollout(self) -> Rollout:
        """What has become of it so far, not scored."""
        return Rollout(
            self.task, tuple(self.turns), None, reported=self.reported, unlearned=self.unlearned,
            agent_calls=self.agent_calls, seconds=time.monotonic() - self.started,
        )  # fmt: skip

    async def reply(self, stop: Sequence[str] = ()) -> str:
        """Sample the next completion and return its text."""
        prompter, first = self.context.prompter, self.prompted_task.prompt
        prompt = prompter.prompt(self.task, self.turns) if self.turns else first
        completion = await self.generate(prompt, (*self.prompted_task.stop, *stop))
        program = extract.program(self.task, completion.text)
        calls = prompter.calls(completion, stop)
        self.turns.append(Turn(prompt, completion, program, calls=calls))
        return completion.text

    async def generate(self, prompt: tuple[int, ...], stop: tuple[str, ...]) -> Completion:
        """Ask the engine for a completion that fits into the rest of the context."""
        context, sampling = self.context, self.context.sampling
        if context.context_length:
            room = context.context_length - len(prompt)
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        if sampling.max_tokens <= 0:
            raise OutOfRoomError
        turn = len(self.turns)
        more_turns = turn + 1 < context.environment.turns
        request = GenerationRequest(prompt, derive(self.seed, turn), stop, self, more_turns)
        completion = await self.sample(request, sampling)
        return replace(completion, text=context.prompter.chat.opened(prompt) + completion.text)

    async def sample(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """What the engine samples, measured. Raises MachineError where its log-probabilities are
        not finite.
        """
        context = self.context
        with context.generation:
            completion = await context.engine.generate(request, sampling)
        if not all(map(math.isfinite, completion.logprobs)):
            if request.lose:
                request.lose(completion.length)
            raise MachineError(
                f"the engine ({type(context.engine).__name__}) gave a log-probability that is not a"
                f" finite number (task {self.task.id}){_remedy(completion.version)}"
            )
        context.generation.count += completion.length
        return completion

    @asynccontextmanager
    async def endpoint(self, limits: CallLimits) -> AsyncIterator[SessionAddress]:
        """Serve the policy to an agent. When the block ends, what is to be learned of its calls is
        the turns, and the other tokens are counted. All of the calls are recorded.
        """
        context, prompter = self.context, self.context.prompter
        policy = ServedPolicy(
            self.sample, prompter.chat, context.sampling, context.context_length,
            prompter.settings.chat_template_kwargs,
        )  # fmt: skip
        async with context.server.places(limits.at_once):
            session = CallSession(policy, self.seed, limits)
            try:
                async with context.server.open(session) as address:
                    yield address
            finally:
                self.agent_calls = recorded_calls(session.tree, len(self.turns))
                self.turns += session.tree.turns()
                counts = balance(session.tree)
                self.unlearned = {name: n for name, n in counts.items() if name != LEARNED and n}

    @property
    def tools(self) -> Sequence[Tool]:
        """What the model may call."""
        return self.context.environment.tools

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the last reply."""
        return self.turns[-1].calls

    @property
    def cut_off(self) -> bool:
        """Whether the last reply ended at the token limit."""
        return self.turns[-1].completion.ended == "length"

    async def check(self, checks: Sequence[AnyCheck] | None = None) -> Execution:
        """Judge the last reply on `checks`, or on the checks of its task.

        Where turns are scored, the checks of the task run too, once per turn.
        """
        context = self.context
        if checks is not None and context.scores_turns and self.turns[-1].execution is None:
            await self.check()
        turn = self.turns[-1]
        task = self.task if checks is None else replace(self.task, checks=tuple(checks))
        with context.judging:
            execution = await self.judge.run(Job(task, turn.program))
        if checks is None:
            self.turns[-1] = replace(turn, execution=execution)
        if not execution.is_judged:
            raise RolloutLostError(execution.detail or "the judge failed", execution.cause)
        return execution

    def show(self, text: str, *, correct: bool = True) -> None:
        """Set the observation that the next prompt shows.

        `correct` is ignored here: the learner also uses a turn that failed, and its reward is low.
        """
        self.turns[-1] = replace(self.turns[-1], observation=encodable(text))

    def drop_reply(self, text: str) -> None:
        """Set the observation that the next prompt shows in place of the last reply; behind it
        where the chat template wants one between two messages of the user.
        """
        self.show(text, correct=False)
        is_dropped = self.context.prompter.chat.takes_users_in_a_row
        self.turns[-1] = replace(self.turns[-1], is_dropped=is_dropped)

    def show_results(self, results: Sequence[str], *, correct: bool = True) -> None:
        """Set what each call of the last reply gave; the next prompt shows it."""
        self.show("\n".join(results), correct=correct)
        self.turns[-1] = replace(self.turns[-1], results=tuple(map(encodable, results)))

    def submit(self, program: str) -> None:
        """Set the program of the last turn, which is judged."""
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], program=encodable(program))

    def report(self, reward: float) -> None:
        """Set the reward that the rollout's agent reports, and a verdict of it."""
        passes = reward >= FULL_REWARD or math.isclose(reward, FULL_REWARD)
        verdict = Verdict.PASS if passes else Verdict.WRONG
        execution = Execution(verdict, int(passes), 1, f"its agent reports {reward:g}")
        self.reported, self.turns[-1] = reward, replace(self.turns[-1], execution=execution)
