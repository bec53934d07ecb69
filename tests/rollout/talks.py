"""One rollout of a scripted engine before a real judge, with real tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay import environments, rewards
from assay.engines.base import GenerationRequest, Sampling
from assay.judge import Judge
from assay.policy.chat import Chat
from assay.rollout.attempt import RolloutContext, attempt, make_prompts
from assay.rollout.group import score
from assay.rollout.prompter import Prompter
from assay.types import Check, Rollout, Task
from tests.judge.opened import with_judge
from tests.policies import tiny_policy
from tests.scripted import ScriptedEngine

ADD = Task(
    "add", "# f(a, b): add them\n", (Check("assert f(1, 2) == 3", hidden=False),
    Check("assert f(5, 5) == 10")), "f",
    reference="def f(a, b):\n    return a + b\n",
)  # fmt: skip
RIGHT = "def f(a, b):\n    return a + b\n"
WRONG = "def f(a, b):\n    return a - b\n"
FLAT = "def f(a, b):\n    return 3\n"
"""Passes the visible check alone."""


@cache
def plain() -> Chat:
    """The chat of the tiny policy, which continues text."""
    with TemporaryDirectory() as folder:
        return tiny_policy(Path(folder)).chat


class Writer(ScriptedEngine):
    """Says one line after another, in the tokens that a policy would end it with."""

    def __init__(self, lines: Sequence[str], chat: Chat) -> None:
        super().__init__(lambda request, member: next(self.lines), chat.encode_reply)
        self.lines = iter(lines)
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Any:
        self.requests.append(request)
        return await super().generate(request, sampling)


class Overflowing(Writer):
    """Gives the log-probabilities of a model whose logits overflow."""

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Any:
        completion = await super().generate(request, sampling)
        return replace(completion, logprobs=(0.0, float("nan"), *completion.logprobs[2:]))


def context(
    writer: Any, judge: Any, chat: Chat, environment: dict[str, Any], **changes: Any
) -> RolloutContext:
    terms = changes.pop("rewards", {"tests": {}})
    given: dict[str, Any] = {"sampling": Sampling(200), **changes}
    built = environments.build(environment)
    return RolloutContext(
        writer, judge, Prompter(chat, built), built, rewards.build(terms), **given
    )


def talk(
    *lines: str, task: Task = ADD, chat: Chat | None = None, **changes: Any
) -> tuple[Rollout, list[GenerationRequest]]:
    """The rollout in which the engine says the lines, by default in `repair`, and what it was
    asked.
    """
    environment = changes.pop("environment", {"name": "repair"})
    chat = chat or plain()
    writer = changes.pop("engine", Writer)(lines, chat)

    async def run(judge: Judge) -> Rollout:
        using = context(writer, judge, chat, environment, **changes)
        (asked,) = make_prompts([task], using.prompter, 1, None)
        return (await score([await attempt(asked, using, seed=3)], using))[0]

    return with_judge(run, stop_early=False), writer.requests
