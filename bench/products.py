"""The three matrix products of a linear layer, by torch and as the policy computes them.

    python -m bench.products
    python -m bench.products --threads 2

Float32, shapes of a Llama of 5M parameters: rows of a decode step, and of an update. Then LoRA's.
Medians of interleaved calls, in microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

from assay.tuning import tune

os.environ.update(tune())

import torch
from torch import Tensor

from assay.policy.onednn import fast_linear, prepack, uses_onednn, weight_gradient

Call = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
REPEATS = 50
SHAPES = [
    (rows, *shape) for rows in (8, 32, 2500) for shape in ((256, 256), (256, 768), (768, 256))
]
SHAPES += [(2500, 256, 16), (2500, 16, 768)]
"""LoRA's two."""
PAIRS: tuple[tuple[Call, Call], ...] = (
    (
        lambda values, weight, grad, prepacked: values @ weight.T,
        lambda values, weight, grad, prepacked: fast_linear(values, weight),
    ),
    (
        lambda values, weight, grad, prepacked: values @ weight.T,
        lambda values, weight, grad, prepacked: fast_linear(values, prepacked),
    ),
    (
        lambda values, weight, grad, prepacked: grad @ weight,
        lambda values, weight, grad, prepacked: fast_linear(grad, weight.T),
    ),
    (
        lambda values, weight, grad, prepacked: grad.T @ values,
        lambda values, weight, grad, prepacked: weight_gradient(grad, values),
    ),
)


def race(pair: tuple[Call, Call], tensors: tuple[Tensor, ...]) -> str:
    """Microseconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for call, seconds in zip(pair, times, strict=True):
            start = time.perf_counter()
            call(*tensors)
            seconds.append(time.perf_counter() - start)
    return " → ".join(f"{1e6 * statistics.median(seconds):.0f}" for seconds in times)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, oneDNN: {uses_onednn()}")
    print("| rows, in, out | output | prepacked | gradient of the input | gradient of the weight |")
    print("| --- | --- | --- | --- | --- |")
    for rows, inputs, outputs in SHAPES:
        weight = torch.randn(outputs, inputs)
        tensors = torch.randn(rows, inputs), weight, torch.randn(rows, outputs), prepack(weight)
        print(
            f"| {rows}, {inputs}, {outputs} |"
            f" {' | '.join(race(pair, tensors) for pair in PAIRS)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
