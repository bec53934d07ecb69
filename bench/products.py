"""The three matrix products of a linear layer, by torch and as the policy computes them (→).

    python -m bench.products
    python -m bench.products --threads 2
    python -m bench.products --heads --rounds 3 --threads 2    # the head after a prefill alone

Float32. First few rows with the weight in each layout, as in decode steps; then the rows of an
update of a Llama of 5M parameters, and LoRA's. Medians of interleaved calls, in microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from assay.tuning import tune

os.environ.update(tune())

import torch
from torch import Tensor

from assay.policy.onednn import ROWS, fast_linear, uses_onednn, weight_gradient

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
HEADS = [(rows, *shape) for shape in ((576, 49_152), (896, 151_936)) for rows in (1, 4, 24)]
"""Prompts, hidden size and vocabulary: the heads of SmolLM2-135M and Qwen2.5-0.5B."""
FEW = [
    (rows, *shape)
    for rows in (8, 32)
    for shape in ((256, 256), (256, 768), (768, 256), (256, 2048), (512, 2048), (768, 2304))
]
"""Rows of a decode step, inputs and outputs: on both sides of `TRANSPOSED`."""
MANY = [(2500, *shape) for shape in ((256, 256), (256, 768), (768, 256), (256, 16), (16, 768))]
"""Rows of an update; the last two are LoRA's."""
PRODUCTS: dict[str, tuple[Call, Call]] = {
    "output": (
        lambda values, weight, grad: values @ weight.T,
        lambda values, weight, grad: fast_linear(values, weight),
    ),
    "gradient of the input": (
        lambda values, weight, grad: grad @ weight,
        lambda values, weight, grad: fast_linear(grad, weight.T),
    ),
    "gradient of the weight": (
        lambda values, weight, grad: grad.T @ values,
        lambda values, weight, grad: weight_gradient(grad, values),
    ),
}


def race(calls: Sequence[Callable[[], object]], rounds: int, products: int = 1) -> str:
    """Microseconds of each, for one of its `products`."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seconds in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            seconds.append((time.perf_counter() - start) / products)
    return " → ".join(f"{1e6 * statistics.median(seconds):.0f}" for seconds in times)


def print_few(rounds: int) -> None:
    """The output with each layout of the weight. There are 24 MB of weights, as in a model, which
    are read in turn.
    """
    print("| rows, in, out | plain → prepacked for oneDNN → transposed |\n| --- | --- |")
    for rows, inputs, outputs in FEW:
        values = torch.randn(rows, inputs)
        plain = [torch.randn(outputs, inputs) for _ in range(6_000_000 // (inputs * outputs) + 1)]
        packed = [torch.ops.mkldnn._reorder_linear_weight(weight, ROWS) for weight in plain]
        layouts = plain, packed, [weight.T.contiguous().T for weight in plain]
        calls = [partial(_outputs, values, weights) for weights in layouts]
        print(f"| {rows}, {inputs}, {outputs} | {race(calls, rounds, len(plain))} |", flush=True)


def _outputs(values: Tensor, weights: Sequence[Tensor]) -> None:
    product = fast_linear if weights[0].is_mkldnn else torch.nn.functional.linear
    for weight in weights:
        product(values, weight)


def print_heads(rounds: int) -> None:
    """The head's product with the last states of prompts of 300 tokens, cut as a view and copied.
    With a view of several rows torch multiplies each with the weights, which bfloat16 copies.
    """
    print("| prompts, in, out | type | view → copy |\n| --- | --- | --- |")
    for dtype in (torch.float32, torch.bfloat16):
        for rows, inputs, outputs in HEADS:
            states = torch.randn(rows, 300, inputs).to(dtype)
            weight = torch.randn(outputs, inputs).to(dtype)
            cuts = states[:, -1:], states[:, torch.tensor([-1])]
            calls = [partial(torch.nn.functional.linear, cut, weight) for cut in cuts]
            print(f"| {rows}, {inputs}, {outputs} | {dtype} | {race(calls, rounds)} |", flush=True)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--heads", action="store_true", help="only the head after a prefill")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, oneDNN: {uses_onednn()}")
    if arguments.heads:
        print_heads(arguments.rounds)
        return
    print_few(arguments.rounds)
    print(f"| rows, in, out | {' | '.join(PRODUCTS)} |\n{'| --- ' * (len(PRODUCTS) + 1)}|")
    for rows, inputs, outputs in MANY:
        shapes = (rows, inputs), (outputs, inputs), (rows, outputs)
        tensors = [torch.randn(shape) for shape in shapes]
        cells = [
            race([partial(function, *tensors) for function in pair], arguments.rounds)
            for pair in PRODUCTS.values()
        ]
        print(f"| {rows}, {inputs}, {outputs} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
