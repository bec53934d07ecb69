"""Log-probabilities and entropies of given tokens under a policy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
