"""Samples to padded tensors, cut into micro-batches under a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.types import Batch, Sample


def micro_batches(samples: Sequence[Sample], budget: int) -> list[list[Sample]]:
    """Samples sorted by length and cut so that each piece, padded, holds at most `budget` tokens (or one sample)."""
    pieces: list[list[Sample]] = []
    for sample in sorted(samples, key=lambda one: len(one.tokens)):
        if pieces and (len(pieces[-1]) + 1) * len(sample.tokens) <= budget:
            pieces[-1].append(sample)
        else:
            pieces.append([sample])
    return pieces


def to_batch(samples: Sequence[Sample], pad_token: int, device: torch.device) -> Batch:
    """Right-padded tensors [B, T] on `device`; T is the longest sample's length."""
    shape = (len(samples), max(len(sample.tokens) for sample in samples))
    tokens = torch.full(shape, pad_token, dtype=torch.int64)
    attention, mask = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    logprobs, advantages = torch.zeros(shape), torch.zeros(shape)
    for row, sample in enumerate(samples):
        length = len(sample.tokens)
        tokens[row, :length] = torch.tensor(sample.tokens)
        attention[row, :length] = True
        mask[row, :length] = torch.tensor(sample.mask)
        if sample.logprobs:
            logprobs[row, :length] = torch.tensor(sample.logprobs)
        if sample.advantages:
            advantages[row, :length] = torch.tensor(sample.advantages)
    return Batch(*(tensor.to(device) for tensor in (tokens, attention, mask, logprobs, advantages)))
