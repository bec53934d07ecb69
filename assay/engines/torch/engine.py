"""Writes with the policy's own weights: there are none to send."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import torch

from assay.config.sections import EngineSettings
from assay.engines.base import Request, Sampling, Written
from assay.engines.torch.decode import Endings, decode, rows_of
from assay.engines.torch.probe import takes_slots
from assay.engines.torch.prompts import Plain
from assay.engines.torch.slots import Slots
from assay.errors import MachineError, SettingsError
from assay.policy.load import Policy

MOST_ROWS = 512
"""Completions written at once, however short; more wait for a place."""


class TorchEngine:
    """The policy itself as engine; or a copy of it in bfloat16, brought up to date by every `load`."""

    def __init__(self, policy: Policy, settings: EngineSettings | None = None) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.version = 0
        self._tried: tuple[Any, bool] | None = None
        self._copied: tuple[Any, Any] | None = None

    async def load(self, policy: Policy, version: int) -> None:
        """Write with `policy` from now on."""
        self.policy = policy
        self.version = version
        if self._copied and self._copied[0] is policy.model:
            _update(self._copied[1], policy.model)

    async def generate(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> AsyncIterator[Written]:
        """All completions, in the order they end; decoding runs in a thread so that judging goes on beside it.

        Raises MachineError when the device's memory runs out, ModelError for a model that cannot be decoded right.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Written | None] = asyncio.Queue()
        stopped = threading.Event()

        def work() -> None:
            try:
                for written in self._decode(requests, sampling, seed):
                    loop.call_soon_threadsafe(queue.put_nowait, written)
                    if stopped.is_set():
                        return
            finally:
                loop.call_soon_threadsafe(queue.put_nowait, None)

        decoding = asyncio.create_task(asyncio.to_thread(work))
        try:
            while (written := await queue.get()) is not None:
                yield written
            await decoding
        finally:
            stopped.set()
            await asyncio.wait([decoding])

    def _decode(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> Iterator[Written]:
        waiting = rows_of(requests, seed)
        if not waiting:
            return
        prompt = max(len(row.asked.prompt) for row in waiting)
        longest = prompt + sampling.max_tokens
        rows = min(MOST_ROWS, len(waiting), max(1, self.settings.tokens // longest))
        endings = Endings(self.policy.chat, sampling.max_tokens, self.version)
        try:
            model = self._model()
            model.eval()
            if self._tried is None or self._tried[0] is not model:
                self._tried = model, takes_slots(model)
            memory: Slots | Plain = Plain(model, rows)
            if self._tried[1]:
                distinct = len({row.asked.prompt for row in waiting})
                memory = Slots(model, rows, min(rows, distinct), prompt, sampling.max_tokens)
            yield from decode(memory, waiting, sampling, endings)
        except torch.OutOfMemoryError as error:
            raise MachineError(
                f"{self.policy.device} has no room for {rows} completions of up to {longest} tokens at once: "
                f"lower engine.tokens (now {self.settings.tokens})"
            ) from error

    def _model(self) -> Any:
        """What writes: the policy's model, or its copy in bfloat16."""
        model = self.policy.model
        if self.settings.dtype == "policy":
            return model
        if getattr(model, "is_quantized", False):
            raise SettingsError("engine.dtype = 'bfloat16' is not for a quantized model; use 'policy'")
        if self._copied is None or self._copied[0] is not model:
            self._copied = model, copy.deepcopy(model).to(torch.bfloat16)
        return self._copied[1]


@torch.no_grad()
def _update(written: Any, learned: Any) -> None:
    for old, new in zip(written.parameters(), learned.parameters(), strict=True):
        if new.requires_grad:
            old.copy_(new)
