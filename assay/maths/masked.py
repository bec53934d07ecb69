"""The reduction under a mask. Masked values are filled, never multiplied: 0 x inf is nan."""

from __future__ import annotations

from torch import Tensor


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [...] where `mask` [...] (bool) is true; a scalar. What is masked may be nan or inf."""
    return values.masked_fill(~mask, 0.0).sum()
