"""CUDA graphs of decode steps: captured when a shape comes a second time, then replayed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from assay.engines.torch.kv_cache import DecodeStep

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], object], Tensor]]
"""Records what a function does. Returns what does it again, and the function's result, which holds
the new numbers then. Raises RuntimeError for what cannot be recorded."""
BLOCK = 64
"""Rows and prompts are padded to powers of two up to this, and to multiples of it beyond."""
WIDTH = 128
"""Cached tokens are padded to multiples of this."""


def bucket(count: int) -> int:
    """The padded number of rows or prompts."""
    return 1 << (count - 1).bit_length() if count <= BLOCK else -(-count // BLOCK) * BLOCK


def wide_bucket(width: int) -> int:
    """The padded number of cached tokens."""
    return -(-width // WIDTH) * WIDTH


def capture_on(device: torch.device) -> Capture | None:
    """Captures CUDA graphs, which share their memory; None on a CPU, which has none."""
    if device.type != "cuda":
        return None
    pool = torch.cuda.graph_pool_handle()

    def capture(run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            logits = run()
        return graph.replay, logits

    return capture


class CudaGraphs:
    """`forward` of decode steps, captured. A step that cannot be captured runs without a graph."""

    def __init__(self, forward: Callable[[DecodeStep], Tensor], capture: Capture) -> None:
        self.forward = forward
        self.capture: Capture | None = capture
        self.clear()

    def clear(self) -> None:
        """Forget all graphs: they hold addresses of tensors."""
        self.captured: dict[tuple[int, ...], tuple[Callable[[], object], DecodeStep, Tensor]] = {}
        self.shapes: set[tuple[int, ...]] = set()

    def __call__(self, step: DecodeStep) -> Tensor:
        """[R, V] logits, valid until the next call."""
        if step.shape not in self.captured and (
            step.shape not in self.shapes or not self._capture(step)
        ):
            self.shapes.add(step.shape)
            return self.forward(step)
        replay, inputs, logits = self.captured[step.shape]
        for buffer, new in zip(inputs.tensors, step.tensors, strict=True):
            buffer.copy_(new)
        replay()
        return logits

    def _capture(self, step: DecodeStep) -> bool:
        if not self.capture:
            return False
        names = ("tokens", "positions", "prompt_lengths", "prompt_rows", "flat_index")
        inputs = replace(step, **{name: getattr(step, name).clone() for name in names})
        try:
            replay, logits = self.capture(lambda: self.forward(inputs))
        except RuntimeError as error:
            self.capture = None
            logging.getLogger(__name__).warning("decoding without CUDA graphs: %s", error)
            return False
        self.captured[step.shape] = replay, inputs, logits
        return True
