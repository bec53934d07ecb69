"""Cuts samples into micro-batches under a token budget, and pads them into tensors."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.algorithms.base import by_group, numbered, rollouts_of
from assay.maths.arrays import to_tensor
from assay.maths.masked import LossMean, token_weights
from assay.types import Batch, Sample

OPTIONAL = ("old_logprobs", "reference_logprobs", "values", "returns")
"""Per-token numbers that a batch holds where any of its samples has them."""


def micro_batches(
    samples: Sequence[Sample], budget: int, *, packed: bool, whole_groups: bool = False
) -> list[list[Sample]]:
    """Cut samples into micro-batches of at most `budget` tokens, or a single sample (group).

    Packed sequences lie end to end and share their prompts, so samples of one prompt stay together
    where they fit. Others are padded to the longest of their micro-batch, so they are sorted by
    length. With `whole_groups`, groups are never cut.
    """
    if packed:
        return _filled(by_group(samples) if whole_groups else _by_prompt(samples, budget), budget)
    units = by_group(samples) if whole_groups else [[sample] for sample in samples]
    pieces: list[list[Sample]] = []
    for unit in sorted(units, key=_longest):
        if pieces and (len(pieces[-1]) + len(unit)) * _longest(unit) <= budget:
            pieces[-1] += unit
        else:
            pieces.append(list(unit))
    return pieces


def _by_prompt(samples: Sequence[Sample], budget: int) -> list[list[Sample]]:
    """Samples grouped by prompt, and cut where they exceed `budget` tokens."""
    units: dict[bytes, list[list[Sample]]] = {}
    for sample in samples:
        unit = units.setdefault(_prompt(sample), [[]])
        if unit[-1] and _packed([*unit[-1], sample]) > budget:
            unit.append([])
        unit[-1].append(sample)
    return list(chain.from_iterable(units.values()))


def _filled(units: Sequence[list[Sample]], budget: int) -> list[list[Sample]]:
    """Pack units first-fit, the largest first."""
    sizes: list[int] = []
    pieces: list[list[Sample]] = []
    for size, unit in sorted(
        ((_packed(unit), unit) for unit in units), key=lambda sized: -sized[0]
    ):
        place = next(
            (place for place, total in enumerate(sizes) if total + size <= budget), len(sizes)
        )
        if place == len(sizes):
            sizes.append(0)
            pieces.append([])
        sizes[place] += size
        pieces[place] += unit
    return pieces


def _packed(unit: Sequence[Sample]) -> int:
    """Tokens of samples laid end to end, each prompt counted once."""
    lengths = {_prompt(sample): _prompt_length(sample) for sample in unit}
    completions = sum(len(sample.tokens) - _prompt_length(sample) for sample in unit)
    return completions + sum(lengths.values())


def _prompt(sample: Sample) -> bytes:
    return bytes(memoryview(sample.tokens)[: _prompt_length(sample)])  # type: ignore[arg-type]


def _prompt_length(sample: Sample) -> int:
    """Tokens before the first trained one."""
    return (bytes(sample.mask) + b"\1").index(1)


def with_weights(samples: Sequence[Sample], mean: LossMean, constant: float) -> list[Sample]:
    """The samples with the weight of each of their tokens in the loss over all of them.

    Parts of one rollout count as one completion. `constant` is the length that `mean = "constant"`
    divides by, in tokens.
    """
    rollouts = torch.tensor(rollouts_of(samples), dtype=torch.int64)
    sizes = torch.tensor([float(sample.trained_tokens) for sample in samples])
    if not samples:
        return []
    lengths = torch.zeros(int(rollouts.max()) + 1).scatter_add(0, rollouts, sizes)
    names = dict(zip(rollouts.tolist(), (sample.group for sample in samples), strict=True))
    groups = torch.tensor(numbered(names.values()))
    weights: list[float] = token_weights(lengths, groups, mean, constant)[rollouts].tolist()
    return [replace(sample, weight=weight) for sample, weight in zip(samples, weights, strict=True)]


def to_batch(samples: Sequence[Sample], pad_token: int, device: torch.device) -> Batch:
    """Right-padded tensors [B, T] on `device`; T is the longest sample's length."""
    width = _longest(samples)

    def padded(name: str, value: int = 0) -> Tensor:
        rows = [to_tensor(getattr(sample, name)) for sample in samples]
        return torch.stack([pad(row, (0, width - len(row)), value=value) for row in rows])

    lengths = torch.tensor([[len(sample.tokens)] for sample in samples])
    tokens, attention = padded("tokens", pad_token).long(), torch.arange(width) < lengths
    weights = torch.tensor([[sample.weight] for sample in samples])
    observed = None
    if any(sample.observed_weight for sample in samples):
        each = torch.tensor([[sample.observed_weight] for sample in samples])
        observed = padded("observed") & (each > 0)
        weights = torch.where(observed, each, weights)
    groups = torch.tensor(numbered(sample.group for sample in samples))
    numbers = padded("mask"), padded("logprobs"), padded("advantages")
    optional = [
        padded(name) if any(getattr(sample, name) for sample in samples) else None
        for name in OPTIONAL
    ]
    again = [[sample.replayed] for sample in samples]
    replayed = torch.tensor(again) if any(sample.replayed for sample in samples) else None
    parts = (tokens, attention, *numbers, weights, groups, *optional, observed, replayed)
    return Batch(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]


def _longest(samples: Sequence[Sample]) -> int:
    return max(len(sample.tokens) for sample in samples)
