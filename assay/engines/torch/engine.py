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
from assay.engines.base import Request, Sampling
from assay.engines.torch.decode import Decoding, Endings, Row, rows_at_once
from assay.engines.torch.lean import Lean, lean
from assay.engines.torch.probe import takes_slots
from assay.engines.torch.prompts import Plain
from assay.engines.torch.slots import Slots
from assay.errors import MachineError, SettingsError
from assay.policy.load import Policy
from assay.types import Completion, Metrics


class TorchEngine:
    """The policy itself as engine; with `apart` a copy of it, which may write while the policy
    learns.

    `engine.dtype = "bfloat16"` makes a copy as well. Decoding runs in a thread, so that judging
    goes on beside it. Raises SettingsError for a model that cannot be copied.
    """

    def __init__(
        self, policy: Policy, settings: EngineSettings | None = None, *, apart: bool = False
    ) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.apart = apart or self.settings.dtype == "bfloat16"
        if self.apart and getattr(policy.model, "is_quantized", False):
            raise SettingsError(
                "a quantized model is not copied: use engine.dtype = 'policy' and rollout.lag = 0"
                " with it"
            )
        self.version = 0
        self.numbers: Metrics = {}
        self._tried: tuple[Any, bool] | None = None
        self._lean: Lean | None = None
        self._copied: tuple[Any, Any] | None = None
        self._inbox: deque[Row] = deque()
        self._halted = threading.Event()
        self._decoding: asyncio.Task[None] | None = None
        self._longest = 0

    @property
    def places(self) -> int:
        """As many completions as there is room for, if all become as long as the longest that was
        asked for.
        """
        return rows_at_once(self.settings.tokens, self._longest)

    async def load(self, policy: Policy, version: int) -> None:
        """Write with `policy` from now on."""
        await self.halt()
        self.policy, self.version, self._lean = policy, version, None
        if self._copied and self._copied[0] is policy.model:
            _update(self._copied[1], policy.model)
        self._longest = max((row.longest for row in self._inbox), default=0)
        self._halted.clear()
        self._go_on()

    async def write(self, request: Request, sampling: Sampling) -> Completion:
        """One completion, handed out the moment it ends.

        Raises MachineError when the device's memory runs out, ModelError for a model that cannot be
        decoded right.
        """
        row = Row(request, sampling, asyncio.get_running_loop().create_future())
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

        def deliver(row: Row, completion: Completion) -> None:
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
        tokens = self.settings.tokens
        try:
            model = self._model()
            model.eval()
            if self._tried is None or self._tried[0] is not model:
                self._tried = model, takes_slots(model)
            if self._lean is None and self._tried[1]:
                self._lean = lean(model)
            memory = Slots(model, self._lean) if self._tried[1] else Plain(model)
            Decoding(memory, self._inbox, Endings(self.policy.chat), self.version, tokens).run(
                self._halted.is_set, deliver
            )
        except torch.OutOfMemoryError as error:
            longest = self._longest
            raise MachineError(
                f"{self.policy.device} has no room for {rows_at_once(tokens, longest)} completions"
                f" of up to {longest} tokens at once: lower engine.tokens (now {tokens})"
            ) from error

    def _model(self) -> Any:
        """What writes: the policy's model, or its copy."""
        model = self.policy.model
        if not self.apart:
            return model
        if self._copied is None or self._copied[0] is not model:
            copied = copy.deepcopy(model)
            self._copied = (
                model,
                copied.to(torch.bfloat16) if self.settings.dtype == "bfloat16" else copied,
            )
        return self._copied[1]


def _hand_out(row: Row, completion: Completion) -> None:
    if not row.ended.done():
        row.ended.set_result(completion)


@torch.no_grad()
def _update(written: Any, learned: Any) -> None:
    for old, new in zip(written.parameters(), learned.parameters(), strict=True):
        if new.requires_grad:
            old.copy_(new)
