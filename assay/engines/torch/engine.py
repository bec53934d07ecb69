"""The in-process engine: it generates with the policy's own weights, or with a synced copy."""

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.completions import StopChecker
from assay.engines.torch.cache_probe import choose_cache
from assay.engines.torch.decode_loop import (
    DecodeLoop,
    DecodeRow,
    Deliver,
    rows_at_once,
)
from assay.engines.torch.fused import FusedDecoder
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import FinishedRows, TransformersCache
from assay.errors import MachineError, SettingsError
from assay.policy.load_model import Policy
from assay.sync import in_own_thread
from assay.types import Completion, Metrics


class TorchEngine:
    """Generates with the policy itself; with `separate_copy`, or `engine.dtype = "bfloat16"`, with
    a copy of it that can generate while the policy learns.

    Decoding runs in a thread, so judging goes on beside it. Raises SettingsError for a model that
    cannot be copied.
    """

    def __init__(
        self, policy: Policy, settings: EngineSettings | None = None, *, separate_copy: bool = False
    ) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.separate_copy = self.settings.copies_policy(separate_copy)
        if self.separate_copy and getattr(policy.model, "is_quantized", False):
            raise SettingsError(
                "a quantized model cannot be copied: use engine.dtype = 'policy' and"
                " rollout.max_staleness = 0"
            )
        self.version = self.tokens_generated = 0
        self.metrics: Metrics = {}
        self._cache_kind: tuple[Any, str] | None = None
        self._fused: FusedDecoder | None = None
        self._finished = FinishedRows(self.settings.kv_cache_tokens)
        self._copy: tuple[Any, Any] | None = None
        self._inbox: deque[DecodeRow] = deque()
        self._halted = threading.Event()
        self._decoding: asyncio.Task[None] | None = None
        self._longest = 0

    @property
    def max_concurrent(self) -> int:
        """How many completions fit into the KV cache if all become as long as the longest request
        so far.
        """
        return rows_at_once(self.settings.kv_cache_tokens, self._longest)

    def check(self) -> None:
        """Raise ModelError if the model cannot be decoded; the first request does so too."""
        self._choose_cache()

    async def load(self, policy: Policy, version: int) -> None:
        """Generate with the weights of `policy` from now on."""
        await self.halt()
        self.policy, self.version, self._fused = policy, version, None
        if self._copy and self._copy[0] is policy.model:
            await in_own_thread(_sync, self._copy[1], policy.model)
        self._longest = max((row.longest for row in self._inbox), default=0)
        self._halted.clear()
        self._resume()

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion; it is returned when it ends, on a CPU up to a second after it.

        Raises MachineError when the device runs out of memory, ModelError for a model that cannot
        be decoded.
        """
        row = DecodeRow(request, sampling, result=asyncio.get_running_loop().create_future())
        self._longest = max(self._longest, row.longest)
        self._inbox.append(row)
        self._resume()
        try:
            return await row.result
        except BaseException:
            if request.lose:
                request.lose(len(row.tokens))
            raise
        finally:
            row.cancelled = True

    async def halt(self) -> None:
        """Stop decoding until the next `load`; unfinished completions wait."""
        self._halted.set()
        if self._decoding:
            await asyncio.wait([self._decoding])
        self._finished.rows.clear()

    def _resume(self) -> None:
        if self._inbox and self._decoding is None and not self._halted.is_set():
            self._decoding = asyncio.create_task(self._decode_in_thread())

    async def _decode_in_thread(self) -> None:
        loop = asyncio.get_running_loop()

        def deliver(row: DecodeRow, completion: Completion) -> None:
            loop.call_soon_threadsafe(_set_result, row, completion)

        def count(tokens: int) -> None:
            self.tokens_generated += tokens

        try:
            await in_own_thread(self._decode, deliver, count)
        except Exception as error:  # noqa: BLE001  raised again where completions are awaited
            while self._inbox:
                row = self._inbox.popleft()
                if not row.result.done():
                    row.result.set_exception(error)
        finally:
            self._decoding = None
            self._resume()

    def _decode(self, deliver: Deliver, count: Callable[[int], None]) -> None:
        tokens = self.settings.kv_cache_tokens
        try:
            stop_checker = StopChecker(self.policy.chat)
            loop = DecodeLoop(self._make_cache(), self._inbox, stop_checker, self.version, tokens)
            loop.run(self._halted.is_set, deliver, count)
        except torch.OutOfMemoryError as error:
            longest = self._longest
            raise MachineError(
                f"{self.policy.device} has no memory for {rows_at_once(tokens, longest)}"
                f" completions of up to {longest} tokens at once: lower engine.kv_cache_tokens (now"
                f" {tokens})"
            ) from error

    def _choose_cache(self) -> tuple[Any, str]:
        model = self._model()
        model.eval()
        if self._cache_kind is None or self._cache_kind[0] is not model:
            self._cache_kind = model, choose_cache(model)
        return self._cache_kind

    def _make_cache(self) -> KVCache | TransformersCache:
        model, kind = self._choose_cache()
        if kind == "fused" and self._fused is None:
            self._fused = FusedDecoder(model)
        if kind == "transformers":
            return TransformersCache(model)
        return KVCache(model, self._fused, finished=self._finished)

    def _model(self) -> Any:
        """The model that generates: the policy's, or its copy."""
        model = self.policy.model
        if not self.separate_copy:
            return model
        if self._copy is None or self._copy[0] is not model:
            copied = copy.deepcopy(model).to(self.policy.device)
            if self.settings.dtype == "bfloat16":
                _round_weights(copied)
            self._copy = model, copied
        return self._copy[1]


def _set_result(row: DecodeRow, completion: Completion) -> None:
    if not row.result.done():
        row.result.set_result(completion)


def _round_weights(model: Any) -> None:
    """Make the weights bfloat16, but not the frequencies of rotary embeddings, which are buffers
    that no checkpoint has.
    """
    for tensor in model.state_dict(keep_vars=True).values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(torch.bfloat16)


@torch.no_grad()
def _sync(copied: Any, learned: Any) -> None:
    for old, new in zip(copied.parameters(), learned.parameters(), strict=True):
        if new.requires_grad:
            old.copy_(new)
