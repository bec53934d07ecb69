"""Importance ratios and losses per token, [B, T] in and [B, T] out; the learner reduces them."""

from typing import Literal

import torch
from torch import Tensor

RatioLevel = Literal["token", "mean", "product"]
ImportanceSampling = Literal[
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
]
MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped here: e^20 is outside every clip range, e^89 overflows float32."""


def ratio(
    logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, level: RatioLevel = "token"
) -> Tensor:
    """The importance ratio r = p / p_old. All [B, T] -> [B, T].

    `token`: of each token; 1 outside the mask. `mean`: the geometric mean over the completion
    (GSPO, arXiv:2507.18071 eq. 7). `product`: the product over the completion (RLOO). The last two
    give every token of a row the same ratio.
    """
    difference = (logprobs - old_logprobs).masked_fill(~mask, 0.0)
    if level != "token":
        count = mask.sum(-1, keepdim=True).clamp(min=1) if level == "mean" else 1
        difference = (difference.sum(-1, keepdim=True) / count).expand_as(difference)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def importance_weights(
    logprobs: Tensor,
    engine_logprobs: Tensor,
    mask: Tensor,
    mode: ImportanceSampling,
    low: float,
    high: float,
) -> Tensor:
    """Importance sampling weights w = p_learner / p_engine, without gradient. [B, T] -> [B, T].

    The engine that sampled a token may differ from the learner: other kernels, or older weights.
    `token_*` takes the ratio of each token, `sequence_*` the product over the completion.
    `*_truncate` clamps it to [low, high] (truncated importance sampling, TIS: Yao et al. 2025,
    fengyao.notion.site/off-policy-rl; V-trace, arXiv:1802.01561). `*_mask` sets it to 0 outside
    that range (IcePop, arXiv:2510.18855).
    """
    if mode == "none":
        return torch.ones_like(logprobs)
    level: RatioLevel = "token" if mode.startswith("token") else "product"
    weight = ratio(logprobs.detach(), engine_logprobs, mask, level)
    if mode.endswith("truncate"):
        return weight.clamp(low, high)
    return weight.masked_fill((weight < low) | (weight > high), 0.0)


def truncation(weights: Tensor, most: float) -> Tensor:
    """min(w, most) / w, which makes a loss that holds the weight w hold min(w, most). Weights are
    not negative. [B, T] -> [B, T] (Ionides 2008, doi:10.1198/106186008X320456).
    """
    return (most / weights).clamp(max=1.0)


def geometric_mask(
    logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, low: float, high: float
) -> Tensor:
    """1 for the tokens of a completion whose ratios p_learner / p_engine have a geometric mean in
    [low, high], else 0; without gradient. [B, T] -> [B, T].

    Unlike the product's, its noise does not grow with length (geometric sequence masking, Liu et
    al. 2025, richardli.xyz/rl-collapse).
    """
    mean = ratio(logprobs.detach(), engine_logprobs, mask, "mean")
    return ((mean >= low) & (mean <= high)).to(logprobs)


def cross_entropy(logprobs: Tensor) -> Tensor:
    """-log p of the demonstrated token. `logprobs` [B, T] -> [B, T]."""
    return -logprobs


def reinforce_loss(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A log p (REINFORCE, Williams 1992, doi:10.1007/BF00992696). Both [B, T] -> [B, T]."""
    return -advantages * logprobs


def clipped_surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """-min(r A, clip(r, 1 - low, 1 + high) A). All [B, T] -> [B, T].

    PPO, arXiv:1707.06347 eq. 7; two bounds (clip-higher): DAPO, arXiv:2503.14476 eq. 10.
    """
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def is_clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """1 where the clip of `clipped_surrogate` stops the gradient, else 0. All [B, T] -> [B, T]."""
    return (
        ((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))
    ).float()


def cispo_loss(
    ratio: Tensor, logprobs: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    """-sg(clip(r, 1 - low, 1 + high)) A log p. All [B, T] -> [B, T].

    The clipped ratio is a weight without gradient (sg), so every token keeps its gradient (CISPO,
    arXiv:2506.13585 eq. 4).
    """
    return -ratio.detach().clamp(1 - low, 1 + high) * advantages * logprobs


def sapo_loss(
    ratio: Tensor, advantages: Tensor, tau_positive: float, tau_negative: float
) -> Tensor:
    """-(4 / tau) sigmoid(tau (r - 1)) A. All [B, T] -> [B, T].

    tau is `tau_positive` where A > 0, else `tau_negative`. The gradient of r is weighted by
    4 s (1 - s), s the sigmoid: 1 at r = 1, and less the further r is (SAPO, arXiv:2511.20347).
    """
    tau = torch.where(advantages > 0, tau_positive, tau_negative)
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages


def dpo_loss(margins: Tensor, beta: float) -> Tensor:
    """-log sigmoid(beta m) (DPO, arXiv:2305.18290 eq. 7). Any shape in and out.

    m is log p/q of the chosen completion minus log p/q of the rejected one; q is the reference.
    """
    return -torch.nn.functional.logsigmoid(beta * margins)


def kto_loss(
    margins: Tensor, signs: Tensor, beta: float, desirable: float, undesirable: float
) -> Tensor:
    """The loss w (1 - sigmoid(beta s m)) (KTO, arXiv:2402.01306). Any shape in and out.

    m is log p/q of a completion less the KL divergence from the reference q. The sign s is positive
    and the weight w `desirable` for a good completion, else negative and `undesirable`.
    """
    weights = torch.where(signs > 0, desirable, undesirable)
    return weights * torch.sigmoid(-beta * signs * margins)


def log_odds(logprobs: Tensor) -> Tensor:
    """log(p / (1 - p)) of log p. Any shape in and out (ORPO, arXiv:2403.07691 eq. 4)."""
    below = logprobs.clamp(max=-1e-6)  # at log p = 0 the odds are infinite
    return below - torch.log(-torch.expm1(below))


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """max((v - R)^2, (v_old + clip(v - v_old, -c, c) - R)^2) / 2. All [B, T] -> [B, T].

    As in PPO's own code (arXiv:2005.12729 section 3).
    """
    near = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum((values - returns).square(), (near - returns).square()) / 2
