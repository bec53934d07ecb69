"""Samples the next tokens of all rows at once; each row has its own stream of random numbers."""

import torch
from torch import Tensor

from assay.engines.base import Sampling

GOLDEN, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """[R] float64 in [0, 1): number `positions` of the streams `seeds`, both [R] int64.

    splitmix64 (doi:10.1145/2714064.2660195): equal on every device, and independent of the other
    rows.
    """
    mixed = seeds + (positions + 1) * GOLDEN
    mixed = (mixed ^ ((mixed >> 30) & (1 << 34) - 1)) * FIRST
    mixed = (mixed ^ ((mixed >> 27) & (1 << 37) - 1)) * SECOND
    mixed = mixed ^ ((mixed >> 31) & (1 << 33) - 1)
    return ((mixed >> 11) & (1 << 53) - 1).double() * 2.0**-53


def sample(logits: Tensor, sampling: Sampling, chances: Tensor) -> tuple[Tensor, Tensor]:
    """[R] tokens sampled from `logits` [R, V] float32, and their log-probabilities [R] under the
    distribution that they are sampled from.

    Row r takes the first token whose cumulative probability exceeds `chances[r]`. Greedy tokens
    have the log-probability of temperature 1. Logits that are NaN give any token, and NaN.
    """
    if sampling.temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
        logprobs = logits.gather(-1, tokens) - logits.logsumexp(-1, keepdim=True)
        return tokens.squeeze(-1), logprobs.squeeze(-1)
    scaled = logits / sampling.temperature if sampling.temperature != 1 else logits
    scaled = filter_logits(scaled, sampling)
    largest = scaled.amax(-1, keepdim=True)
    cumulative = (scaled - largest).exp_().cumsum_(-1)  # in place: a new [R, V] costs more than exp
    total = cumulative[:, -1:]
    thresholds = (chances.unsqueeze(-1) * total).float()
    below = torch.nextafter(total, torch.zeros_like(total))
    tokens = torch.searchsorted(cumulative, torch.minimum(thresholds, below), right=True)
    tokens = tokens.clamp(max=logits.shape[-1] - 1)
    return tokens.squeeze(-1), (scaled.gather(-1, tokens) - largest - total.log()).squeeze(-1)


def filter_logits(logits: Tensor, sampling: Sampling) -> Tensor:
    """`logits` [R, V] with -inf outside top-k, then top-p of the rest, then min-p."""
    if 0 < sampling.top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.softmax(-1).sort(dim=-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= sampling.top_p
        outside = torch.zeros_like(outside).scatter(-1, order, outside)
        logits = logits.masked_fill(outside, -torch.inf)
    if sampling.min_p > 0:
        least = logits.amax(-1, keepdim=True) + torch.tensor(sampling.min_p).log().item()
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits
