"""One attempt at a task, turn by turn: what is written is cut to programs, judged and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from assay import extract
from assay.engines.base import Engine, GenerationRequest, Sampling
from assay.environments import Environment, OutOfRoomError
from assay.errors import DataError, RolloutLostError, UserError
from assay.judge import Job, Judge
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.rollout.meter import Meter
from assay.types import (
    Call,
    Check,
    Completion,
    Exchange,
    Execution,
    Rollout,
    Score,
    Task,
    Turn,
    Verdict,
)

RewardFunction = Callable[[Rollout], Score]


@dataclass(frozen=True, slots=True)
class Means:
    """What every attempt needs: who writes, who judges, what happens between, and what it is
    worth.
    """

    engine: Engine
    judge: Judge
    chat: Chat
    environment: Environment
    reward: RewardFunction
    sampling: Sampling
    context: int | None = None
    """Longest sequence the model can read, in tokens."""
    scores_turns: bool = False
    """Whether each judged turn is scored, not only the last."""
    writing: Meter = field(default_factory=Meter)
    """Completions, and their tokens."""
    judging: Meter = field(default_factory=Meter)
    """Executions."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A task with the tokens that ask for it, and the strings that end an answer."""

    task: Task
    prompt: tuple[int, ...]
    stop: tuple[str, ...] = ()


def ask(tasks: Sequence[Task], chat: Chat, max_tokens: int, context: int | None) -> list[Prompted]:
    """The tasks with their prompts. Raises DataError when one does not leave room for `max_tokens`
    in the context.
    """
    asked = [Prompted(task, chat.prompt(task), chat.stop(task)) for task in tasks]
    longest = max(asked, key=lambda one: len(one.prompt), default=None)
    if longest and context and len(longest.prompt) + max_tokens > context:
        raise DataError(
            f"task {longest.task.id!r} has a prompt of {len(longest.prompt)} tokens: with"
            f" max_tokens = {max_tokens} that is more than the model's context of {context}; lower"
            " max_tokens or leave the task out"
        )
    return asked


async def attempt(asked: Prompted, means: Means, seed: int) -> Rollout:
    """The rollout of one attempt; its words follow from `seed`. A machine's failure gives one with
    no score.

    Raises UserError for an environment that ends before it has asked for a reply, SandboxError when
    the judge gives up.
    """
    talk = Dialogue(asked, means, seed)
    try:
        with suppress(OutOfRoomError):
            await means.environment.talk(talk)
        if not talk.turns:
            raise UserError(
                f"environment {means.environment.name!r} asked for no reply (task {asked.task.id});"
                " mend it"
            )
        if talk.turns[-1].execution is None:
            await talk.check()
    except RolloutLostError as failure:
        return Rollout(asked.task, tuple(talk.turns), None, failure=str(failure))
    rollout = Rollout(asked.task, tuple(talk.turns), None)
    return replace(rollout, score=talk.turns[-1].score or means.reward(rollout))


class Dialogue:
    """A rollout in the making: what its environment talks to."""

    def __init__(self, asked: Prompted, means: Means, seed: int) -> None:
        self.task = asked.task
        self.judge = means.judge
        self.asked = asked
        self.means = means
        self.seed = seed
        self.turns: list[Turn] = []

    async def reply(self, stop: Sequence[str] = ()) -> str:
        """The policy's next words."""
        prompt = (
            self.means.chat.continued(self.task, self.turns) if self.turns else self.asked.prompt
        )
        completion = await self.written(prompt, (*self.asked.stop, *stop))
        self.turns.append(Turn(prompt, completion, extract.program(self.task, completion.text)))
        return completion.text

    async def written(self, prompt: tuple[int, ...], stop: tuple[str, ...]) -> Completion:
        """What the engine writes, as long as there is room."""
        means = self.means
        room = means.context - len(prompt) if means.context else means.sampling.max_tokens
        if room <= 0:
            raise OutOfRoomError
        with means.writing:
            request = GenerationRequest(prompt, derive(self.seed, len(self.turns)), stop)
            completion = await means.engine.generate(request, _within(means.sampling, room))
        means.writing.done += len(completion.tokens)
        return completion

    @property
    def cut_off(self) -> bool:
        """Whether the last reply ended at the limit of tokens."""
        return self.turns[-1].completion.ended == "length"

    async def check(self, checks: Sequence[Check | Call | Exchange] | None = None) -> Execution:
        """Judge the last reply; where turns are scored, under the task's checks too, once."""
        if checks is not None and self.means.scores_turns and self.turns[-1].execution is None:
            await self.check()
        turn = self.turns[-1]
        task = self.task if checks is None else replace(self.task, checks=tuple(checks))  # type: ignore[arg-type]
        with self.means.judging:
            execution = await self.judge.run(Job(task, turn.program))
        if checks is None:
            self.turns[-1] = replace(turn, execution=execution)
        if execution.verdict is Verdict.INFRA:
            raise RolloutLostError(execution.detail or "the judge failed")
        if checks is None and self.means.scores_turns:
            scored = self.means.reward(Rollout(self.task, tuple(self.turns), None))
            self.turns[-1] = replace(self.turns[-1], score=scored)
        return execution

    def show(self, text: str, *, held: bool = True) -> None:
        """What stands before the next reply; what did not hold is learned from all the same: its
        reward says so.
        """
        self.turns[-1] = replace(self.turns[-1], observation=text)


def _within(sampling: Sampling, room: int) -> Sampling:
    return sampling if sampling.max_tokens <= room else replace(sampling, max_tokens=room)
