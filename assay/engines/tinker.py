"""Generates on the Tinker server that trains the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from assay.config.generation import EngineSettings
from assay.engines.base import MAX_LOST, Engine, GenerationRequest, Opening, Sampling, engine
from assay.engines.completions import PendingCompletion, StopChecker
from assay.errors import MachineError, RolloutLostError, SettingsError
from assay.sync import in_own_thread
from assay.types import Completion, Metrics

if TYPE_CHECKING:
    from assay.policy.load_model import Policy
    from assay.policy.tinker import TinkerPolicy


class TinkerEngine:
    """Samples with a snapshot of the weights, which the server takes at each load."""

    def __init__(self, policy: TinkerPolicy, settings: EngineSettings) -> None:
        self.max_concurrent, self.metrics = settings.max_concurrent, Metrics()
        self.tokens_generated, self._version = 0, -1
        self._lost = 0
        """Completions in a row."""
        self._sampler: Any = None
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._adapter, self._stop_checker = policy.adapter, StopChecker(policy.chat)

    async def load(self, policy: Policy, version: int) -> None:
        """Take a snapshot of the weights. Running requests finish on the one before."""
        if version != self._version:
            self._sampler = await in_own_thread(self._adapter.sampler)
            self._version = version

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion. The server knows stop tokens only: what it has sampled after a
        stop string is cut off here.

        Raises SettingsError if the server refuses, RolloutLostError for a completion that it fails,
        and MachineError when it fails one after another.
        """
        from assay.policy.tinker import sample

        async with self._slots:
            sampler, version = self._sampler, self._version
            try:
                tokens, logprobs = await sample(
                    sampler, self._adapter.url, list(request.prompt),
                    max_tokens=sampling.max_tokens, temperature=sampling.temperature,
                    top_p=sampling.top_p, top_k=sampling.top_k or -1, seed=request.seed % 2**31,
                    stop=sorted(self._stop_checker.chat.stop_tokens),
                )  # fmt: skip
            except MachineError as error:
                self._lost += 1
                if self._lost >= MAX_LOST:
                    raise MachineError(f"{error} ({self._lost} times in a row)") from error
                raise RolloutLostError(str(error)) from error
        self._lost = 0
        self.tokens_generated += len(tokens)
        row = PendingCompletion(request, sampling)
        for token, logprob in zip(tokens, logprobs, strict=True):
            row.append(token, logprob, version)
            if completion := self._stop_checker.completion(row):
                return completion
        return row.ended("stop", self._stop_checker.chat.text(row.tokens))


@engine
async def tinker(opening: Opening[Policy]) -> AsyncIterator[Engine]:
    """The Tinker server of `learner.server`, in training runs only."""
    from assay.policy.tinker import TinkerPolicy  # imports torch

    if not isinstance(opening.policy, TinkerPolicy):
        raise SettingsError(
            "engine.name = 'tinker' generates with weights that a training run has on its server;"
            " its checkpoints are adapters, which 'torch' and 'vllm' generate with"
        )
    yield TinkerEngine(opening.policy, opening.settings)
