"""Divergences between the distributions of two policies: over the whole vocabulary, or, where only
the sampled token's probability is known, of that token against all others.

Two outcomes are merged from many, so a binary divergence is a lower bound of that over the
vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

Divergence = Literal["tv", "kl"]
EDGE = 1e-6
"""Probabilities are kept so far from 0 and 1, where the logarithm of their complement ends."""


def reverse_kl(logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """KL(p || t) = sum_v p (log p - log t), over the last dimension. Both [..., V] -> [...].

    The policy p is drawn to one mode of the teacher t, and away from what t never says (on-policy
    distillation: MiniLLM, arXiv:2306.08543; GKD, arXiv:2306.13649).
    """
    return (logprobs.exp() * (logprobs - teacher_logprobs)).sum(-1)


def binary_divergence(logprobs: Tensor, sampler_logprobs: Tensor, kind: Divergence) -> Tensor:
    """D(m || p) of the sampled token against all others. Both [B, T] -> [B, T].

    With p the policy's and m the sampler's probability, total variation (`tv`) is |p - m| and `kl`
    is m log(m / p) + (1 - m) log((1 - m) / (1 - p)) (DPPO, arXiv:2602.04879).
    """
    p, m = logprobs.exp(), sampler_logprobs.exp()
    if kind == "tv":
        return (p - m).abs()
    p, m = p.clamp(EDGE, 1 - EDGE), m.clamp(EDGE, 1 - EDGE)
    return m * (m / p).log() + (1 - m) * ((1 - m) / (1 - p)).log()


def leaves_trust_region(
    logprobs: Tensor,
    sampler_logprobs: Tensor,
    advantages: Tensor,
    kind: Divergence,
    low: float,
    high: float,
) -> Tensor:
    """Whether a token is too far from the sampler and its gradient leads further. [B, T] -> [B, T].

    That is p > m and D > `high` for A > 0, or p < m and D > `low` for A < 0 (DPPO, arXiv:2602.04879
    eq. 12). A gradient that leads back is never stopped.
    """
    divergence = binary_divergence(logprobs, sampler_logprobs, kind)
    above, below = logprobs > sampler_logprobs, logprobs < sampler_logprobs
    rises = (advantages > 0) & above & (divergence > high)
    falls = (advantages < 0) & below & (divergence > low)
    return torch.logical_or(rises, falls)
