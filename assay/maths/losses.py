"""Losses per token, [B, T] in and [B, T] out; one function of the learner reduces them."""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(logprobs: Tensor) -> Tensor:
    """-log p of the demonstrated token. `logprobs` [B, T] -> [B, T]."""
    return -logprobs


def policy_gradient(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE, -A log p (Williams 1992, doi:10.1007/BF00992696). Both [B, T] -> [B, T]."""
    return -advantages * logprobs


def clipped_surrogate(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """-min(r A, clip(r, 1 - low, 1 + high) A), r = exp(log p - log p_old) (PPO, arXiv:1707.06347 eq. 7; two bounds:
    DAPO, arXiv:2503.14476 eq. 10). All [B, T] -> [B, T].
    """
    ratio = torch.exp(logprobs - old_logprobs)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def clipped(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """1 where the clip of `clipped_surrogate` stops the gradient, else 0. All [B, T] -> [B, T]."""
    ratio = torch.exp(logprobs - old_logprobs)
    stopped = ((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))
    return stopped.float()
