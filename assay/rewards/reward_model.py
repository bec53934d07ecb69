"""What a reward model says of the whole conversation, computed in a process of its own."""

import asyncio
import json
import math
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from itertools import compress
from tempfile import TemporaryFile
from typing import Any

from assay.errors import ModelError, RolloutLostError
from assay.judge import AnyJudge
from assay.prompts import messages
from assay.rewards import BatchFunction, reward
from assay.types import Message, Rollout, as_dicts

PROGRAM = "assay.policy.classifier"
LONGEST_LINE = 1 << 24
LINES = 5
"""The last ones of what it wrote to standard error, shown where it dies."""
STARTS = 2
"""How often a process is started for one batch before its rollouts are lost."""


@reward
async def reward_model(
    _: AnyJudge, *, model: str, gated: bool = False, shift: float = 0.0, scale: float = 1.0,
    device: str = "auto", dtype: str = "auto", batch_size: int = 8, max_tokens: int = 4096,
    seconds: float = 600.0,
) -> AsyncIterator[BatchFunction]:  # fmt: skip
    """sigmoid((score - shift) / scale), in [0, 1], of a local sequence classifier with one output
    (a Bradley-Terry reward model). `gated`: 0 for a program that fails a test.

    It runs in a process of its own, on `device`, `batch_size` conversations at once. One longer
    than `max_tokens` loses its beginning. A batch that takes over `seconds`, or whose process dies
    twice, is lost, not scored 0. Raises ModelError for a model that is none.
    """
    settings = {
        "model": model, "device": device, "dtype": dtype, "batch_size": batch_size,
        "max_tokens": max_tokens,
    }  # fmt: skip
    scorer = Scorer(json.dumps(settings), seconds)
    try:
        await scorer.start()

        async def scores(rollouts: Sequence[Rollout]) -> list[float]:
            counts = [rollout.passed or not gated for rollout in rollouts]
            dialogues = [conversation(rollout) for rollout in compress(rollouts, counts)]
            numbers = iter(await scorer.scores(dialogues) if dialogues else ())
            return [sigmoid((next(numbers) - shift) / scale) if paid else 0.0 for paid in counts]

        yield scores
    finally:
        await scorer.end()


def conversation(rollout: Rollout) -> list[dict[str, str]]:
    """The task, then each reply and what the environment said to it."""
    dialogue = list(messages(rollout.task))
    for turn in rollout.turns:
        dialogue.append(Message("assistant", turn.completion.text))
        if turn.observation and turn is not rollout.turns[-1]:
            dialogue.append(Message("user", turn.observation))
    return as_dicts(dialogue)


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    return (1.0 + math.tanh(value / 2)) / 2


class Scorer:
    """The process that holds the model. It ends with its standard input."""

    def __init__(self, settings: str, seconds: float) -> None:
        self._settings, self._seconds = settings, seconds
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> Process:
        """The process, started if it does not run. Raises ModelError, RolloutLostError."""
        if self._process is None:
            self._stderr = TemporaryFile()  # noqa: SIM115  `end` closes it
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", PROGRAM, self._settings,
                stdin=PIPE, stdout=PIPE, stderr=self._stderr, limit=LONGEST_LINE,
            )  # fmt: skip
            if refusal := (await self._answer(self._process)).get("refused"):
                raise ModelError(f"{refusal}; fix rewards.reward_model")
        return self._process

    async def scores(self, conversations: Sequence[Any]) -> list[float]:
        """The scores. Raises RolloutLostError where the machine fails."""
        failure = RolloutLostError()
        async with self._turn:
            for _ in range(STARTS):
                scores: list[float] | None = None
                try:
                    process = await self.start()
                    assert process.stdin
                    process.stdin.write(json.dumps(conversations).encode() + b"\n")
                    scores = (await self._answer(process))["scores"]
                    return scores
                except RolloutLostError as lost:
                    failure = lost
                finally:
                    if scores is None:  # an answer may still come: the next one must not read it
                        await self.end()
        raise failure

    async def _answer(self, process: Process) -> dict[str, Any]:
        assert process.stdout
        try:
            line = await asyncio.wait_for(process.stdout.readline(), self._seconds)
            answer: dict[str, Any] = json.loads(line)
        except TimeoutError:
            raise RolloutLostError(f"the reward model took over {self._seconds:g} s") from None
        except ValueError:
            self._stderr.seek(0)
            tail = self._stderr.read().decode("utf-8", "replace").splitlines()[-LINES:]
            raise RolloutLostError(": ".join(["the reward model's process ended", *tail])) from None
        if "failed" in answer:
            raise RolloutLostError(f"the reward model failed: {answer['failed']}")
        return answer

    async def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process and process.returncode is None:
            process.kill()
            await process.wait()
        self._stderr.close()
