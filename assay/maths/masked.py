"""Reductions under a mask. Masked values are filled, never multiplied: 0 x inf is nan."""

from typing import Literal

import torch
from torch import Tensor

LossMean = Literal["tokens", "completions", "prompts", "constant"]


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [...] where `mask` [...] (bool) is true; a scalar. Masked values may be nan
    or inf.
    """
    return values.masked_fill(~mask, 0.0).sum()


def masked_max(values: Tensor, mask: Tensor) -> Tensor:
    """Largest of `values` [...] where `mask` [...] (bool) is true; a scalar, -inf if none is."""
    return values.masked_fill(~mask, -torch.inf).max()


def token_weights(lengths: Tensor, groups: Tensor, mean: LossMean, constant: float) -> Tensor:
    """Weight of one token of each completion, so that the weighted sum of losses is their mean.

    `tokens`: 1 / all tokens of the step (DAPO, arXiv:2503.14476). `completions`: 1 / (N x the
    completion's own tokens) (GRPO, arXiv:2402.03300). `prompts`: 1 / (G x the tokens of all
    completions of its group), G the number of groups. `constant`: 1 / (N x `constant`), which does
    not depend on any length (Dr. GRPO, arXiv:2503.20783). `lengths` [N] float, in tokens, `groups`
    [N] int64 ids from 0 -> [N].
    """
    match mean:
        case "tokens":
            counts = lengths.sum().clamp(min=1).expand_as(lengths)
        case "completions":
            counts = len(lengths) * lengths.clamp(min=1)
        case "prompts":
            sizes = torch.zeros(int(groups.max()) + 1).to(lengths).index_add(0, groups, lengths)
            counts = len(sizes) * sizes.clamp(min=1)[groups]
        case "constant":
            counts = torch.full_like(lengths, len(lengths) * constant)
    return 1 / counts
