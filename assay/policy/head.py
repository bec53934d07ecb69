"""Log-probabilities of given tokens from hidden states, a tile of logits at a time: they are never
held all at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.policy.products import Linear, filled, product

TILE = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits that are held at once, as numbers of four bytes."""


def chosen_logprobs(
    head: Any, hidden: Tensor, targets: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Log p of `targets` [M] int64 and the entropy in nats after `hidden` [M, H], both [M] float32.

    The logits are head(hidden) / temperature, in the precision of the head's weights or, under
    autocast, in autocast's. The entropy has a gradient only where `entropy_gradient`.
    """
    rows = max(1, TILE.get(hidden.device.type, TILE["cuda"]) // head.out_features)
    if type(head) in (nn.Linear, Linear) and "forward" not in vars(head):
        device = hidden.device.type
        dtype = (
            torch.get_autocast_dtype(device)
            if torch.is_autocast_enabled(device)
            else head.weight.dtype
        )
        given = filled(hidden), head.weight, head.bias, filled(targets)
        with torch.autocast(device, enabled=False):
            found = _Linear.apply(*given, temperature, rows, entropy_gradient, dtype)  # type: ignore[no-untyped-call]
        return found[0][: len(targets)], found[1][: len(targets)]
    pieces = [
        checkpoint(
            _by_calling, head, some, wanted, temperature, entropy_gradient, use_reentrant=False
        )
        for some, wanted in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    ]
    logprobs, entropy = zip(*pieces, strict=True)
    return torch.cat(logprobs), torch.cat(entropy)


def from_logits(logits: Tensor, targets: Tensor, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    """The same from logits [M, V] float32, divided by the temperature already."""
    logp = torch.log_softmax(logits, dim=-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy


def _by_calling(
    head: Any, hidden: Tensor, targets: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    return from_logits(head(hidden).float() / temperature, targets, entropy_gradient)


class _Linear(torch.autograd.Function):
    """Log softmax((h W' + b) / T) at the target, and its entropy H, over tiles of rows.

    With z the scaled logits, d log p(y) / dz = onehot(y) - p and dH / dz = -p (log p + H). A head
    that does not learn has its slopes towards h made on the way forward, but for a factor per row;
    one that learns has its logits made once more on the way back, all but the last tile's, which
    are still there.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
        temperature: float, rows: int,
        entropy_gradient: bool, dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        learns = any(ctx.needs_input_grad[1:3])
        leads = ctx.needs_input_grad[0] and not learns
        ctx.settings = temperature, rows, dtype, learns
        matrix = weight.to(dtype)
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy, logp = torch.empty_like(logprobs), None
        ahead: list[list[Tensor]] = []
        for start in range(0, len(targets), rows):
            here = slice(start, start + rows)
            logp = _tile(hidden[here], matrix, bias, temperature)
            logprobs[here] = logp.gather(-1, targets[here].unsqueeze(-1)).squeeze(-1)
            p = logp.exp()
            entropy[here] = -torch.linalg.vecdot(p, logp)
            if leads:
                ahead.append(
                    [(matrix[targets[here]] - product(p.to(dtype), matrix.T)) / temperature]
                )
            if leads and entropy_gradient:
                ahead[-1].append(
                    product(logp.add_(entropy[here, None]).mul_(p).to(dtype), matrix.T)
                    / -temperature
                )
        slopes = [torch.cat(tiles) for tiles in zip(*ahead, strict=True)]
        ctx.save_for_backward(
            hidden, weight, bias, targets, entropy, logp if learns else None, *slopes
        )
        ctx.set_materialize_grads(False)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *factors: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy, logp, *slopes = ctx.saved_tensors
        temperature, rows, dtype, learns = ctx.settings
        if not learns:
            d_hidden = torch.zeros_like(hidden)
            for slope, factor in zip(slopes, factors, strict=False):
                d_hidden += 0 if factor is None else slope * factor[:, None]
            return d_hidden, *[None] * 7
        by_logprob, by_entropy = factors
        by_logprob = torch.zeros_like(entropy) if by_logprob is None else by_logprob
        matrix = weight.to(dtype)
        d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for start in reversed(range(0, len(targets), rows)):
            here = slice(start, start + rows)
            logp = _tile(hidden[here], matrix, bias, temperature) if logp is None else logp
            p, factor = logp.exp(), by_logprob[here, None]
            if by_entropy is None:
                slope = p.mul_(-factor)
            else:
                slope = (
                    logp.add_(entropy[here, None])
                    .mul_(by_entropy[here, None])
                    .add_(factor)
                    .mul_(p)
                    .neg_()
                )
            slope = slope.scatter_add_(1, targets[here, None], factor).div_(temperature).to(dtype)
            d_hidden[here] = product(slope, matrix.T)
            d_weight += product(slope.T, hidden[here].to(dtype).T)
            if d_bias is not None:
                d_bias += slope.sum(0)
            logp = None
        return d_hidden, d_weight, d_bias, *[None] * 5


def _tile(hidden: Tensor, matrix: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """[n, V] float32 log-probabilities of the whole vocabulary."""
    logits = product(
        hidden.to(matrix.dtype), matrix, None if bias is None else bias.to(matrix.dtype)
    )
    return torch.log_softmax(logits.float().div_(temperature), dim=-1)
