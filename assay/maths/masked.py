"""Reductions under a mask. Masked values are filled, never multiplied: 0 x inf is nan."""

from __future__ import annotations

from torch import Tensor


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [...] where `mask` [...] (bool) is true; a scalar. What is masked may be nan or inf."""
    return values.masked_fill(~mask, 0.0).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` [...] where `mask` [...] is true; 0 where nothing is."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)
