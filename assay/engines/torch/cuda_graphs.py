"""CUDA graphs of decode steps: captured when a shape comes a second time, then replayed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from assay.engines.torch.kv_cache import DecodeStep

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


class CudaGraphs:
    """`forward` of decode steps on CUDA. A step that cannot be captured runs without a graph."""

    def __init__(self, forward: Callable[[DecodeStep], Tensor]) -> None:
        self.forward = forward
        self.captured: dict[tuple[int, ...], tuple[Any, DecodeStep, Tensor]] = {}
        self.shapes: set[tuple[int, ...]] = set()
        self.pool = torch.cuda.graph_pool_handle()
        self.usable = True

    def __call__(self, step: DecodeStep) -> Tensor:
        """[R, V] logits, valid until the next call."""
        if step.shape not in self.captured and (
            step.shape not in self.shapes or not self._capture(step)
        ):
            self.shapes.add(step.shape)
            return self.forward(step)
        graph, inputs, logits = self.captured[step.shape]
        for buffer, new in zip(inputs.tensors, step.tensors, strict=True):
            buffer.copy_(new)
        graph.replay()
        return logits

    def _capture(self, step: DecodeStep) -> bool:
        if not self.usable:
            return False
        names = ("tokens", "positions", "prompt_lengths", "prompt_rows", "flat_index")
        inputs = replace(step, **{name: getattr(step, name).clone() for name in names})
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                logits = self.forward(inputs)
        except RuntimeError as error:
            self.usable = False
            logging.getLogger(__name__).warning("decoding without CUDA graphs: %s", error)
            return False
        self.captured[step.shape] = graph, inputs, logits
        return True
