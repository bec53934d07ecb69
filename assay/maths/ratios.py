"""How much likelier a policy makes what another one wrote, and what to do where the two differ too
much.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Level = Literal["token", "mean", "product"]
Correction = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
MOST = 20.0
"""Log-ratios are cut here: e^20 is beyond every clip, e^89 is infinite in float32."""


def ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, level: Level = "token") -> Tensor:
    """The ratio p / p_old, all [B, T] -> [B, T]: of each token; or of the whole completion, on all
    its tokens.

    `mean` is the geometric mean over its tokens (GSPO, arXiv:2507.18071, eq. 7), `product` their
    product. 1 outside the mask for `token`.
    """
    difference = (logprobs - old_logprobs).masked_fill(~mask, 0.0)
    if level != "token":
        count = mask.sum(-1, keepdim=True).clamp(min=1) if level == "mean" else 1
        difference = (difference.sum(-1, keepdim=True) / count).expand_as(difference)
    return difference.clamp(-MOST, MOST).exp()


def corrected(
    logprobs: Tensor,
    engine_logprobs: Tensor,
    mask: Tensor,
    how: Correction,
    low: float,
    high: float,
) -> Tensor:
    """The weight of tokens that the learner finds less or more likely than the engine that drew
    them. [B, T] -> [B, T].

    p_learner / p_engine of each token, or of the whole completion; outside [low, high] truncated to
    the nearer end (truncated importance sampling, Yao et al. 2025,
    fengyao.notion.site/off-policy-rl; V-trace, arXiv:1802.01561) or 0 (IcePop, arXiv:2510.18855).
    Without gradient.
    """
    if how == "none":
        return torch.ones_like(logprobs)
    weight = ratio(
        logprobs.detach(), engine_logprobs, mask, "token" if how.startswith("token") else "product"
    )
    if how.endswith("truncate"):
        return weight.clamp(low, high)
    return weight.masked_fill((weight < low) | (weight > high), 0.0)
