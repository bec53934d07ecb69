"""Log-probabilities and entropies of given tokens under a policy, and what its critic expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.types import Batch


@dataclass(frozen=True, slots=True)
class Seen:
    """What a policy says of the tokens of a batch; 0 outside the mask."""

    logprobs: Tensor
    """[B, T] float32, log p(token t | tokens before t)."""
    entropy: Tensor
    """[B, T] float32, nats, of the distribution that token t was drawn from; with a gradient only where asked for."""
    values: Tensor | None = None
    """[B, T] float32, what the critic expects before token t; None without a critic."""


def forward(
    model: Any, batch: Batch, temperature: float = 1.0, *, critic: Any = None, entropy_gradient: bool = False
) -> Seen:
    """What `model` says of the tokens where `batch.mask` is true; `temperature` divides the logits.

    `critic` takes hidden states [N, H] to values [N]. Logits are made only of the positions that some row needs:
    prompts that all rows have cost none.
    """
    mask, wanted = batch.mask, batch.mask[:, 1:]
    needed = wanted.any(dim=0).nonzero().squeeze(-1)
    out = model(
        input_ids=batch.tokens, attention_mask=batch.attention.long(), use_cache=False, logits_to_keep=needed,
        output_hidden_states=critic is not None,
    )  # fmt: skip
    all_logprobs = torch.log_softmax(out.logits[wanted[:, needed]].float() / temperature, dim=-1)
    chosen = all_logprobs.gather(-1, batch.tokens[:, 1:][wanted].unsqueeze(-1)).squeeze(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = -(all_logprobs.exp() * all_logprobs).sum(-1)
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    values = None
    if critic is not None:
        values = zeros.masked_scatter(mask, critic(out.hidden_states[-1][:, :-1][wanted]))
    return Seen(zeros.masked_scatter(mask, chosen), zeros.masked_scatter(mask, entropies), values)


def token_logprobs(
    model: Any, tokens: Tensor, attention: Tensor, mask: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log p(token t | tokens before t) in fp32, where `mask` is true, and the entropy of that distribution in nats.

    `tokens` [B, T] int64, right-padded; `attention` [B, T] and `mask` [B, T] bool, mask[:, 0] false. Both results are
    [B, T] float32 and 0 outside the mask. `temperature` divides the logits. The entropy has no gradient. Logits are
    made only of the positions that some row needs: prompts that all rows have cost none.
    """
    wanted = mask[:, 1:]
    all_logprobs = _all_logprobs(model, tokens, attention, wanted, temperature)
    chosen = all_logprobs.gather(-1, tokens[:, 1:][wanted].unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropies = torch.special.entr(all_logprobs.exp()).sum(-1)
    logprobs = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
    entropy = torch.zeros_like(logprobs)
    return logprobs.masked_scatter(mask, chosen), entropy.masked_scatter(mask, entropies)


def _all_logprobs(model: Any, tokens: Tensor, attention: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """[N, V] of every token of the vocabulary after the N positions where `wanted` [B, T-1] is true.

    A function of its own so that the logits are let go before anything else of their size is made.
    """
    needed = wanted.any(dim=0).nonzero().squeeze(-1)
    out = model(input_ids=tokens, attention_mask=attention.long(), use_cache=False, logits_to_keep=needed)
    return torch.log_softmax(out.logits[wanted[:, needed]].float() / temperature, dim=-1)
