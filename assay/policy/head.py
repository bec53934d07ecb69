"""Token log-probabilities from hidden states, with the logits computed in tiles (chunks).

The logits of all tokens are never in memory at once, as in a fused linear cross-entropy.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.maths.divergences import reverse_kl
from assay.policy.onednn import fast_linear, is_plain_linear, pad_rows, padding_rows

TILE = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Size of a tile by device: logits held at once, four bytes each."""
LEAST_ROWS = 256
"""A tile of a large vocabulary has so many rows all the same: with 27 rows and 151,936 tokens the
products took twice as long."""


def logprobs_from_hidden(
    head: Any, hidden: Tensor, targets: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """The log-probability of each of `targets` [M] int64 and the entropy in nats of its
    distribution, from `hidden` [M, H]; both [M] float32.

    The logits are head(hidden) / temperature, in the dtype of the head's weights. The entropy has a
    gradient only with `entropy_gradient`.
    """
    rows = max(LEAST_ROWS, TILE.get(hidden.device.type, TILE["cuda"]) // head.out_features)
    if is_plain_linear(head):
        more = padding_rows(len(hidden), hidden.device)
        inputs = pad_rows(hidden, more), head.weight, head.bias, pad_rows(targets, more)
        outputs = _TiledLogprobs.apply(*inputs, temperature, rows, entropy_gradient)  # type: ignore[no-untyped-call]
        return outputs[0][: len(targets)], outputs[1][: len(targets)]

    def of_tile(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return logprobs_from_logits(head(hidden).float() / temperature, targets, entropy_gradient)

    tiles = zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    outputs = [checkpoint(of_tile, *tile, use_reentrant=False) for tile in tiles]
    logprobs, entropy = zip(*outputs, strict=True)
    return torch.cat(logprobs), torch.cat(entropy)


def head_bytes(rows: int, weight: Tensor, device: str) -> int:
    """The most bytes that `logprobs_from_hidden` holds for `rows` of hidden states in its backward
    pass: tiles of logits, and, where the head is trained, its gradient in float32 with one tile's
    product, beside the gradient of the hidden states.
    """
    vocabulary, width = weight.shape
    size = weight.element_size()
    tile = 4 * vocabulary * min(rows, max(LEAST_ROWS, TILE[device] // vocabulary))
    tiles = tile * 4 if size == 4 else tile * 9 // 2  # the last tile's, and those that replace them
    gradient = (4 + size) * weight.numel() if weight.requires_grad else 0
    return tiles + gradient + rows * width * size


def logprobs_from_logits(
    logits: Tensor, targets: Tensor, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """The same from logits [M, V] float32 that are already divided by the temperature."""
    logp = torch.log_softmax(logits, dim=-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy


def compared_with_teacher(
    head: Any, hidden: Tensor, teacher_head: Any, teacher_hidden: Tensor, targets: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """KL(policy || teacher) in nats over the vocabulary, with a gradient to `hidden` [M, H], and
    the teacher's log-probability of each of `targets` [M] int64; both [M] float32.

    Both models' logits are divided by the temperature. Heads may be padded to different sizes: what
    only one of them has is left out, for it is no token.
    """

    def of_tile(hidden: Tensor, theirs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = _logits(head, hidden) / temperature
        with torch.no_grad():
            their_logits = _logits(teacher_head, theirs) / temperature
            shared = min(logits.shape[-1], their_logits.shape[-1])
            teacher = torch.log_softmax(their_logits[:, :shared], -1)
        policy = torch.log_softmax(logits[:, :shared], -1)
        return reverse_kl(policy, teacher), teacher.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    width = getattr(teacher_head, "out_features", teacher_hidden.shape[-1])
    rows = max(LEAST_ROWS, TILE.get(hidden.device.type, TILE["cuda"]) // width)
    pieces = (torch.split(part, rows) for part in (hidden, teacher_hidden, targets))
    tiles = zip(*pieces, strict=True)
    outputs = [checkpoint(of_tile, *tile, use_reentrant=False) for tile in tiles]
    divergence, logprobs = zip(*outputs, strict=True)
    return torch.cat(divergence), torch.cat(logprobs)


def _logits(head: Any, hidden: Tensor) -> Tensor:
    """The head's logits in float32, computed in the head's own type."""
    weight = getattr(head, "weight", hidden)
    logits: Tensor = head(hidden.to(weight.dtype))
    return logits.float()


class _TiledLogprobs(torch.autograd.Function):
    """Log softmax((h W' + b) / T) at the target, and its entropy H, in tiles of rows.

    With z the scaled logits, d log p(y) / dz = onehot(y) - p and dH / dz = -p (log p + H). If the
    head is frozen, the forward pass already computes the gradient towards h, up to one factor per
    row. If it is trained, the backward pass computes the logits again, except those of the last
    tile, which are still in memory.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
        temperature: float, rows: int, entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        is_trained = any(ctx.needs_input_grad[1:3])
        computes_grads = ctx.needs_input_grad[0] and not is_trained
        ctx.settings = temperature, rows, is_trained
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy, logp = torch.empty_like(logprobs), None
        tile_grads: list[list[Tensor]] = []
        dtype = weight.dtype
        for start in range(0, len(targets), rows):
            here = slice(start, start + rows)
            logp = _tile(hidden[here], weight, bias, temperature)
            logprobs[here] = logp.gather(-1, targets[here].unsqueeze(-1)).squeeze(-1)
            p = logp.exp()
            entropy[here] = -torch.linalg.vecdot(p, logp)
            if computes_grads:
                tile_grads.append(
                    [(weight[targets[here]] - fast_linear(p.to(dtype), weight.T)) / temperature]
                )
            if computes_grads and entropy_gradient:
                tile_grads[-1].append(
                    fast_linear(logp.add_(entropy[here, None]).mul_(p).to(dtype), weight.T)
                    / -temperature
                )
        grads = [torch.cat(tiles) for tiles in zip(*tile_grads, strict=True)]
        ctx.save_for_backward(
            hidden, weight, bias, targets, entropy, logp if is_trained else None, *grads
        )
        ctx.set_materialize_grads(False)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy, logp, *grads = ctx.saved_tensors
        temperature, rows, is_trained = ctx.settings
        if not is_trained:
            d_hidden = torch.zeros_like(hidden)
            for grad, factor in zip(grads, output_grads, strict=False):
                d_hidden += 0 if factor is None else grad * factor[:, None]
            return d_hidden, *[None] * 6
        logprob_grad, entropy_grad = output_grads
        logprob_grad = torch.zeros_like(entropy) if logprob_grad is None else logprob_grad
        d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for start in reversed(range(0, len(targets), rows)):
            here = slice(start, start + rows)
            logp = _tile(hidden[here], weight, bias, temperature) if logp is None else logp
            p, factor = logp.exp(), logprob_grad[here, None]
            if entropy_grad is None:
                grad = p.mul_(-factor)
            else:
                grad = (
                    logp.add_(entropy[here, None])
                    .mul_(entropy_grad[here, None])
                    .add_(factor)
                    .mul_(p)
                    .neg_()
                )
            grad = grad.scatter_add_(1, targets[here, None], factor).div_(temperature)
            grad = grad.to(weight.dtype)
            d_hidden[here] = fast_linear(grad, weight.T)
            d_weight += fast_linear(grad.T, hidden[here].to(weight.dtype).T)
            if d_bias is not None:
                d_bias += grad.sum(0)
            logp = None
        return d_hidden, d_weight, d_bias, *[None] * 4


def _tile(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """[n, V] float32 log-probabilities of the whole vocabulary."""
    logits = fast_linear(hidden.to(weight.dtype), weight, bias)
    return torch.log_softmax(logits.float().div_(temperature), dim=-1)
