"""Estimators of KL(policy || reference) for each sampled token (Schulman 2020,
joschu.net/blog/kl-approx).
"""

from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """k1 = log p - log q: unbiased, may be negative. Both [B, T] -> [B, T]."""
    return logprobs - reference


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """k2 = (log p - log q)^2 / 2: biased, never negative. Both [B, T] -> [B, T]."""
    return (logprobs - reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """k3 = q/p - 1 - log(q/p): unbiased, never negative. Both [B, T] -> [B, T].

    GRPO, arXiv:2402.03300 eq. 4.
    """
    difference = reference - logprobs
    return torch.expm1(difference) - difference


KL_ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
