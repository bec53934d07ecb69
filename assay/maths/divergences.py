"""Estimates per token of KL(policy || reference) of sampled tokens (Schulman 2020,
joschu.net/blog/kl-approx).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Log p - log q: unbiased, of either sign. Both [B, T] -> [B, T]."""
    return logprobs - reference


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """(log p - log q)^2 / 2: biased, never negative. Both [B, T] -> [B, T]."""
    return (logprobs - reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): unbiased and never negative (GRPO, arXiv:2402.03300 eq. 4). Both [B, T]
    -> [B, T].
    """
    difference = reference - logprobs
    return torch.expm1(difference) - difference


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
