"""Writes with the policy's own weights: there are none to send; or with a copy of them, brought up
to date.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from typing import Any

import torch

from assay.config.sections import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch.cache_probe import supports_kv_cache
from assay.engines.torch.decode_loop import DecodeLoop, PendingCompletion, StopChecker, rows_at_once
from assay.engines.torch.fused import FusedDecoder, make_fused_decoder
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import TransformersCache
from assay.errors import MachineError, SettingsError
from assay.policy.load import Policy
from assay.types import Completion, Metrics


class TorchEngine:
    """The policy itself as engine; with `separate_copy` a copy of it, which may write while the policy
    learns.

    `engine.dtype = "bfloat16"` makes a copy as well. DecodeLoop runs in a thread, so that judging
    goes on beside it. Raises SettingsError for a model that cannot be copied.
    """

    def __init__(
        self, policy: Policy, settings: EngineSettings | None = None, *, separate_copy: bool = False
    ) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.separate_copy = separate_copy or self.settings.dtype == "bfloat16"
        if self.separate_copy and getattr(policy.model, "is_quantized", False):
            raise SettingsError(
                "a quantized model cannot be copied: use engine.dtype = 'policy' and"
                " rollout.max_staleness = 0"
            )
        self.version = 0
        self.metrics: Metrics = {}
        self._tried: tuple[Any, bool] | None = None
        self._fused: FusedDecoder | None = None
        self._copied: tuple[Any, Any] | None = None
        self._inbox: deque[PendingCompletion] = deque()
        self._halted = threading.Event()
        self._decoding: asyncio.Task[None] | None = None
        self._longest = 0

    @property
    def max_concurrent(self) -> int:
        """As many completions as there is room for, if all become as long as the longest that was
        asked for.
        """
        return rows_at_once(self.settings.kv_cache_tokens, self._longest)

    async def load(self, policy: Policy, version: int) -> None:
        """Write with `policy` from now on."""
        await self.halt()
        self.policy, self.version, self._fused = policy, version, None
        if self._copied and self._copied[0] is policy.model:
            _update(self._copied[1], policy.model)
        self._longest = max((row.longest for row in self._inbox), default=0)
        self._halted.clear()
        self._go_on()

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """One completion, handed out the moment it ends.

        Raises MachineError when the device's memory runs out, ModelError for a model that cannot be
        decoded right.
        """
        row = PendingCompletion(request, sampling, asyncio.get_running_loop().create_future())
        self._longest = max(self._longest, row.longest)
        self._inbox.append(row)
        self._go_on()
        try:
            return await row.ended
        finally:
            row.given_up = True

    async def halt(self) -> None:
        """Write nothing until `load`; what is unfinished waits."""
        self._halted.set()
        if self._decoding:
            await asyncio.wait([self._decoding])

    def _go_on(self) -> None:
        if self._inbox and self._decoding is None and not self._halted.is_set():
            self._decoding = asyncio.create_task(self._decode_beside())

    async def _decode_beside(self) -> None:
        loop = asyncio.get_running_loop()

        def deliver(row: PendingCompletion, completion: Completion) -> None:
            loop.call_soon_threadsafe(_hand_out, row, completion)

        try:
            await asyncio.to_thread(self._decode, deliver)
        except Exception as error:  # noqa: BLE001  whatever decoding raises is raised where completions are awaited
            while self._inbox:
                row = self._inbox.popleft()
                if not row.ended.done():
                    row.ended.set_exception(error)
        finally:
            self._decoding = None
            self._go_on()

    def _decode(self, deliver: Any) -> None:
        tokens = self.settings.kv_cache_tokens
        try:
            model = self._model()
            model.eval()
            if self._tried is None or self._tried[0] is not model:
                self._tried = model, supports_kv_cache(model)
            if self._fused is None and self._tried[1]:
                self._fused = make_fused_decoder(model)
            memory = KVCache(model, self._fused) if self._tried[1] else TransformersCache(model)
            DecodeLoop(
                memory, self._inbox, StopChecker(self.policy.chat), self.version, tokens
            ).run(self._halted.is_set, deliver)
        except torch.OutOfMemoryError as error:
            longest = self._longest
            raise MachineError(
                f"{self.policy.device} has no room for {rows_at_once(tokens, longest)} completions"
                f" of up to {longest} tokens at once: lower engine.kv_cache_tokens (now {tokens})"
            ) from error

    def _model(self) -> Any:
        """What writes: the policy's model, or its copy."""
        model = self.policy.model
        if not self.separate_copy:
            return model
        if self._copied is None or self._copied[0] is not model:
            copied = copy.deepcopy(model)
            self._copied = (
                model,
                copied.to(torch.bfloat16) if self.settings.dtype == "bfloat16" else copied,
            )
        return self._copied[1]


def _hand_out(row: PendingCompletion, completion: Completion) -> None:
    if not row.ended.done():
        row.ended.set_result(completion)


@torch.no_grad()
def _update(written: Any, learned: Any) -> None:
    for old, new in zip(written.parameters(), learned.parameters(), strict=True):
        if new.requires_grad:
            old.copy_(new)
