"""Steps of decoding as CUDA graphs: recorded when a shape comes back, then replayed without
Python.
"""

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
"""Rows and prompts are padded to powers of two up to here, and beyond to multiples."""
WIDTH = 128
"""Cached tokens are padded to multiples of this."""


def bucket(count: int) -> int:
    """The padded number of rows or prompts."""
    return 1 << (count - 1).bit_length() if count <= BLOCK else -(-count // BLOCK) * BLOCK


def wide_bucket(width: int) -> int:
    """The padded number of tokens."""
    return -(-width // WIDTH) * WIDTH


class Graphs:
    """`forward` for steps on CUDA. What cannot be recorded is run as it is."""

    def __init__(self, forward: Callable[[DecodeStep], Tensor]) -> None:
        self.forward = forward
        self.recorded: dict[tuple[int, ...], tuple[Any, DecodeStep, Tensor]] = {}
        self.met: set[tuple[int, ...]] = set()
        self.pool = torch.cuda.graph_pool_handle()
        self.usable = True

    def __call__(self, step: DecodeStep) -> Tensor:
        """[R, V] logits, good until the next call."""
        if step.shape not in self.recorded and (
            step.shape not in self.met or not self._record(step)
        ):
            self.met.add(step.shape)
            return self.forward(step)
        graph, inputs, logits = self.recorded[step.shape]
        for kept, new in zip(inputs.tensors, step.tensors, strict=True):
            kept.copy_(new)
        graph.replay()
        return logits

    def _record(self, step: DecodeStep) -> bool:
        if not self.usable:
            return False
        names = ("tokens", "positions", "lengths", "prompt_rows", "back")
        inputs = replace(step, **{name: getattr(step, name).clone() for name in names})
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                logits = self.forward(inputs)
        except RuntimeError as error:
            self.usable = False
            logging.getLogger(__name__).warning("decoding goes on without CUDA graphs: %s", error)
            return False
        self.recorded[step.shape] = graph, inputs, logits
        return True
