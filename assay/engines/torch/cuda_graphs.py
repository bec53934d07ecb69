"""Decode steps, and their CUDA graphs: captured when a shape comes a second time, then replayed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], object], Tensor]]
"""Records what a function does. Returns what does it again, and the function's result, which holds
the new numbers then. Raises RuntimeError for what cannot be recorded."""
BLOCK = 64
"""Rows and prompts are padded to powers of two up to this, and to multiples of it beyond."""
WIDTH = 128
"""Cached tokens are padded to multiples of this."""


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The inputs of one decode step: R rows, of N prompts, with up to G rows for each prompt."""

    tokens: Tensor
    """[R] the last sampled tokens."""
    positions: Tensor
    """[R] the position of that token behind the shared prompt."""
    prompt_lengths: Tensor
    """[R] tokens of the row's prompt that it shares with others; none of a short prompt."""
    prompt_rows: Tensor
    """[N, G] the rows of each prompt, padded with 0."""
    flat_index: Tensor
    """[R] where each row stands in the flattened `prompt_rows`."""
    prompt_width: int
    completion_width: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in a fixed order."""
        return (self.tokens, self.positions, self.prompt_lengths, self.prompt_rows, self.flat_index)

    @property
    def shape(self) -> tuple[int, ...]:
        """Steps of equal shape share a CUDA graph: (R, N, G, prompt width, completion width)."""
        return (len(self.tokens), *self.prompt_rows.shape, self.prompt_width, self.completion_width)


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
