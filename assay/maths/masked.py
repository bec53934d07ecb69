"""The reduction under a mask. Masked values are filled, never multiplied: 0 x inf is nan."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Mean = Literal["tokens", "completions", "constant"]


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [...] where `mask` [...] (bool) is true; a scalar. What is masked may be nan
    or inf.
    """
    return values.masked_fill(~mask, 0.0).sum()


def token_weights(lengths: Tensor, limits: Tensor, mean: Mean) -> Tensor:
    """What one token of each of N samples counts in a loss: `masked_sum` of loss times weight is
    the mean.

    `tokens`: over all tokens alike (DAPO, arXiv:2503.14476). `completions`: over a sample's own
    tokens, then over samples (GRPO, arXiv:2402.03300). `constant`: over as many tokens as there
    could have been (Dr. GRPO, arXiv:2503.20783). `lengths` and `limits` [N] float, tokens there are
    and could have been -> [N].
    """
    match mean:
        case "tokens":
            counts = lengths.sum().clamp(min=1).expand_as(lengths)
        case "completions":
            counts = len(lengths) * lengths.clamp(min=1)
        case "constant":
            counts = len(lengths) * limits.maximum(lengths).clamp(min=1)
    return 1 / counts
