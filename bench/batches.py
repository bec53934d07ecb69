"""What cutting, padding and packing samples costs for each token, beside learning.

    python -m bench.batches

512 samples of 300 prompt tokens and 200 to 1,000 more, in groups of 8; CPU time of one thread, the
least of seven.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from assay.tuning import tune

os.environ.update(tune())

import torch

from assay.policy.packed import pack
from assay.train.batch import micro_batches, to_batch, with_weights
from assay.types import Sample

T = TypeVar("T")
PROMPT, GROUPS, GROUP, BUDGET, REPEATS = 300, 64, 8, 32_768, 7


def samples() -> list[Sample]:
    """GRPO's, before it computes anything."""
    draw, rows = random.Random(0), list[Sample]()
    for group in range(GROUPS):
        prompt = [draw.randrange(32_000) for _ in range(PROMPT)]
        for _ in range(GROUP):
            more = draw.randrange(200, 1000)
            numbers = [0.0] * PROMPT + [draw.random() for _ in range(more)]
            rows.append(
                Sample(
                    prompt + [draw.randrange(32_000) for _ in range(more)],
                    [False] * PROMPT + [True] * more,
                    logprobs=numbers,
                    advantages=numbers,
                    group=str(group),
                )
            )
    return rows


def timed(name: str, tokens: int, work: Callable[[], T]) -> T:
    """The work's result; prints what a token costs."""
    least = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        result = work()
        least = min(least, time.process_time() - start)
    print(f"{name}: {least / tokens * 1e9:.0f} ns a token")
    return result


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    torch.set_num_threads(1)
    rows = samples()
    tokens = sum(len(sample.tokens) for sample in rows)
    cpu = torch.device("cpu")
    timed("weights", tokens, lambda: with_weights(rows, "tokens", 1.0))
    pieces = timed("micro-batches", tokens, lambda: micro_batches(rows, BUDGET, packed=True))
    batches = timed("tensors", tokens, lambda: [to_batch(piece, 0, cpu) for piece in pieces])
    timed("packing", tokens, lambda: [pack(batch.tokens, batch.mask) for batch in batches])


if __name__ == "__main__":
    main()
