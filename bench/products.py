"""The three products of a linear layer, by torch and as the policy takes them.

    python -m bench.products

Float32, one thread, shapes of a Llama of 5M parameters: rows of a decode step, and of an update.
Medians of interleaved calls, in microseconds.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from assay.openmp import waiting

os.environ.update(waiting())

import torch
from torch import Tensor

from assay.policy.products import by_onednn, packed, product

Call = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
REPEATS = 50
SHAPES = [
    (rows, *shape) for rows in (8, 32, 2500) for shape in ((256, 256), (256, 768), (768, 256))
]
PAIRS: tuple[tuple[Call, Call], ...] = (
    (
        lambda given, matrix, slope, own: given @ matrix.T,
        lambda given, matrix, slope, own: product(given, matrix),
    ),
    (
        lambda given, matrix, slope, own: given @ matrix.T,
        lambda given, matrix, slope, own: product(given, own),
    ),
    (
        lambda given, matrix, slope, own: slope @ matrix,
        lambda given, matrix, slope, own: product(slope, matrix.T),
    ),
    (
        lambda given, matrix, slope, own: slope.T @ given,
        lambda given, matrix, slope, own: product(slope.T, given.T),
    ),
)


def race(pair: tuple[Call, Call], tensors: tuple[Tensor, ...]) -> str:
    """Microseconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for call, found in zip(pair, times, strict=True):
            start = time.perf_counter()
            call(*tensors)
            found.append(time.perf_counter() - start)
    return " → ".join(f"{1e6 * statistics.median(found):.0f}" for found in times)


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, by oneDNN: {by_onednn()}")
    print("| rows, in, out | output | packed | slope of the input | slope of the weights |")
    print("| --- | --- | --- | --- | --- |")
    for rows, inputs, outputs in SHAPES:
        matrix = torch.randn(outputs, inputs)
        tensors = torch.randn(rows, inputs), matrix, torch.randn(rows, outputs), packed(matrix)
        print(
            f"| {rows}, {inputs}, {outputs} |"
            f" {' | '.join(race(pair, tensors) for pair in PAIRS)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
