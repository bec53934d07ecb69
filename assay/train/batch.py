"""Samples to padded tensors, cut into micro-batches under a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.types import Batch, Sample


def micro_batches(samples: Sequence[Sample], budget: int, packed: bool) -> list[list[Sample]]:
    """Samples cut into pieces of at most `budget` tokens (or one sample).

    Packed sequences lie end to end and share their prompts, so samples of one prompt stay together as far as they fit.
    Others are padded to the longest of their piece, so they are sorted by length.
    """
    if packed:
        return _by_prompt(samples, budget)
    pieces: list[list[Sample]] = []
    for sample in sorted(samples, key=lambda one: len(one.tokens)):
        if pieces and (len(pieces[-1]) + 1) * len(sample.tokens) <= budget:
            pieces[-1].append(sample)
        else:
            pieces.append([sample])
    return pieces


def _by_prompt(samples: Sequence[Sample], budget: int) -> list[list[Sample]]:
    groups: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.tokens[: (*sample.mask, True).index(True)], []).append(sample)
    units: list[tuple[int, list[Sample]]] = []
    for prompt, group in groups.items():
        size = budget
        for sample in group:
            size += len(sample.tokens) - len(prompt)
            if size > budget:
                size = len(sample.tokens)
                units.append((size, []))
            units[-1] = (size, [*units[-1][1], sample])
    sizes: list[int] = []
    pieces: list[list[Sample]] = []
    for size, unit in sorted(units, key=lambda one: -one[0]):
        place = next((place for place, held in enumerate(sizes) if held + size <= budget), len(sizes))
        if place == len(sizes):
            sizes.append(0)
            pieces.append([])
        sizes[place] += size
        pieces[place] += unit
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
