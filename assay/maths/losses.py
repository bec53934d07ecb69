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


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> Tensor:
    """-min(r A, clip(r, 1 - low, 1 + high) A) (PPO, arXiv:1707.06347 eq. 7; two bounds: DAPO,
    arXiv:2503.14476 eq. 10).

    With `dual` c > 1 + high, at most -c A where A < 0 (dual clip, arXiv:1912.09729 eq. 5). All [B,
    T] -> [B, T].
    """
    bounded = ratio if dual is None else ratio.clamp(max=dual)
    return -torch.minimum(bounded * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def clipped(
    ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> Tensor:
    """1 where the clip of `clipped_surrogate` stops the gradient, else 0. All [B, T] -> [B, T]."""
    stopped = ((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))
    if dual is not None:
        stopped = stopped | ((ratio > dual) & (advantages < 0))
    return stopped.float()


def truncated_policy_gradient(
    ratio: Tensor, logprobs: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    """-sg(clip(r, 1 - low, 1 + high)) A log p: no token loses its gradient (CISPO, arXiv:2506.13585
    eq. 4). [B, T].
    """
    return -ratio.detach().clamp(1 - low, 1 + high) * advantages * logprobs


def preference(margins: Tensor, beta: float) -> Tensor:
    """-log sigmoid(beta m), m = log p/q of the chosen less that of the rejected (DPO,
    arXiv:2305.18290 eq. 7).

    Any shape in and out.
    """
    return -torch.nn.functional.logsigmoid(beta * margins)


def clipped_value(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """max((v - R)^2, (v_old + clip(v - v_old, -c, c) - R)^2) / 2 (PPO's code, arXiv:2005.12729
    section 3). [B, T].
    """
    near = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum((values - returns).square(), (near - returns).square()) / 2
