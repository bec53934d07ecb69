"""Sequences end to end in one row, a prompt once for all that continue it; and the attention that
keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from assay.policy.onednn import padding_rows

ATTENTION = "assay_"
"""Prefix of the attention implementations registered here; without segments they do what is named
behind it."""
HARMLESS = {"scaling", "dropout", "is_causal", "position_ids", "use_cache"}
"""What a model may tell its attention without changing who sees whom."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pairs of spans of the row: the queries of each see the keys of the same number, and no
    others.
    """

    queries: tuple[int, ...]
    """Lengths, laid end to end from `start`."""
    keys: tuple[int, ...]
    """Lengths, laid end to end from 0."""
    start: int
    """Where the first query is in the row."""
    causal: bool
    """Whether a query sees only the keys up to its own place in the span."""
    ends: tuple[Tensor, Tensor]
    """[len + 1] int32: the sums of the first n queries, and keys."""

    def spans(self) -> list[tuple[slice, slice]]:
        """Places of queries and keys in the row, pair by pair."""
        queries, keys = (
            accumulate(self.queries, initial=self.start),
            accumulate(self.keys, initial=0),
        )
        return [
            (slice(*q), slice(*k)) for q, k in zip(pairwise(queries), pairwise(keys), strict=True)
        ]

    def reach(self) -> tuple[slice, slice]:
        """Places of all queries and of all keys."""
        return slice(self.start, self.start + sum(self.queries)), slice(0, sum(self.keys))

    def varlen(self) -> tuple[Tensor, Tensor, int, int]:
        """Ends and longest spans, as kernels for sequences of different lengths want them."""
        return *self.ends, max(self.queries), max(self.keys)


def _part(
    queries: Sequence[int], keys: Sequence[int], start: int, causal: bool, device: torch.device
) -> Part:
    ends = (
        torch.tensor([*accumulate(one, initial=0)], dtype=torch.int32, device=device)
        for one in (queries, keys)
    )
    return Part(tuple(queries), tuple(keys), start, causal, (next(ends), next(ends)))


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch as one row of N tokens: the prompts that several rows share, what continues them, the
    rest, filling.
    """

    tokens: Tensor
    """[N] int64."""
    positions: Tensor
    """[N] int64, the place of each token in its own sequence."""
    places: Tensor
    """[M] int64, for each position of the mask in row-major order the place in the row that
    predicts it."""
    parts: tuple[Part, ...]
    """Who sees whom: every span itself, causally; and, where prompts are shared, each continuation
    its prompt."""


def pack(tokens: Tensor, mask: Tensor) -> Packed:
    """Lay out `tokens` [B, T] int64, of which those in `mask` [B, T] bool are predicted.

    Rows that are equal up to their first predicted token share that prompt; what no prediction
    depends on is left out.
    """
    device, lists = tokens.device, tokens.tolist()
    first, last = mask.int().argmax(-1), mask.shape[1] - 1 - mask.flip(-1).int().argmax(-1)
    begins, ends = first.tolist(), last.tolist()
    alike: dict[tuple[int, ...], list[int]] = {}
    for row in mask.any(-1).nonzero().squeeze(-1).tolist() or [0]:
        alike.setdefault(tuple(lists[row][: begins[row]]), []).append(row)
    groups = [
        rows
        for rows in alike.values()
        if len(rows) > 1 and any(begins[row] < ends[row] for row in rows)
    ]
    alone = [row for rows in alike.values() if rows not in groups for row in rows]
    spans = [(rows[0], 0, begins[rows[0]]) for rows in groups]
    spans += [(row, begins[row], ends[row]) for rows in groups for row in rows]
    spans += [(row, 0, ends[row]) for row in alone]
    lengths = [end - begin for _, begin, end in spans]
    starts = list(accumulate(lengths, initial=0))

    heads, tails, shared = [0] * len(lists), [0] * len(lists), len(groups)
    for (row, begin, _), start in zip(spans[shared:], starts[shared:-1], strict=True):
        heads[row], tails[row] = start, start - begin + begins[row]
    for rows, start in zip(groups, starts, strict=False):
        for row in rows:
            heads[row] = start
    of, before = mask.nonzero(as_tuple=True)
    before = before - 1
    head, tail = (torch.tensor(one, device=device)[of] for one in (heads, tails))
    filled = [0] * padding_rows(sum(lengths), device)
    own = [length for length in (*lengths, len(filled)) if length]
    parts = [_part(own, own, 0, True, device)]
    continued = [sum(ends[row] - begins[row] for row in rows) for rows in groups]
    if groups:
        parts.append(_part(continued, lengths[:shared], starts[shared], False, device))
    laid = [token for row, begin, end in spans for token in lists[row][begin:end]]
    return Packed(
        tokens=torch.tensor(laid + filled, device=device),
        positions=torch.tensor(
            [n for _, begin, end in spans for n in range(begin, end)] + filled, device=device
        ),
        places=torch.where(before < first[of], head + before, tail + before - first[of]),
        parts=tuple(parts),
    )


def sees_only_parts(model: Any) -> bool:
    """Give a model attention that heeds `parts`; false where its attention is not the usual, full
    and causal one.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    name = config._attn_implementation
    if name.startswith(ATTENTION):
        return True
    if kinds != {"full_attention"} or name != "sdpa":
        return False
    otherwise = AttentionInterface()[name]
    AttentionInterface.register(ATTENTION + name, partial(_attention, otherwise))
    AttentionMaskInterface.register(ATTENTION + name, AttentionMaskInterface()[name])
    model.set_attn_implementation(ATTENTION + name)
    return True


def _attention(
    otherwise: Callable[..., Any],
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    **given: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: `query` [1, A, N, D], `key` and `value` [1, K, N, D] -> [1, N, A,
    D].
    """
    parts = given.pop("parts", None)
    if parts is None:
        return otherwise(module, query, key, value, mask, **given)  # type: ignore[no-any-return]
    strange = [
        name
        for name, what in given.items()
        if name not in HARMLESS and what is not None and what is not False
    ]
    if strange or given.get("dropout"):
        raise NotImplementedError(
            f"attention with {', '.join(strange) or 'dropout'} over packed sequences"
        )
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    scale = given.get("scaling") or query.shape[-1] ** -0.5
    found: Tensor = _Attention.apply(query, key, value, parts, scale)  # type: ignore[no-untyped-call]
    return found.transpose(1, 2), None


class _Attention(torch.autograd.Function):
    """Softmax attention whose keys come in parts, merged by their log-sum-exps.

    The backward pass of a part takes the merged output and log-sum-exp: p = exp(s - lse), and the
    rowsum(dO * O) in ds = p (dp - rowsum(dO * O)), are then those of the whole softmax, so the
    parts' gradients add up to the exact one.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float
    ) -> Tensor:
        kernel = _cpu if query.device.type == "cpu" else _cuda
        own, *shared = parts
        out, lse = kernel(query, key, value, own, scale)
        for part in shared:
            more, more_lse = kernel(query, key, value, part, scale)
            here = slice(part.start, part.start + sum(part.queries))
            merged = torch.logaddexp(lse[:, :, here], more_lse)
            kept, added = (lse[:, :, here] - merged).exp_(), (more_lse - merged).exp_()
            out[:, :, here] = out[:, :, here] * kept.unsqueeze(-1) + more * added.unsqueeze(-1)
            lse[:, :, here] = merged
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.parts, ctx.scale = parts, scale
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        kernel: Callable[..., list[Tensor]] = (
            _cpu_backward if slope.device.type == "cpu" else _cuda_backward
        )
        saved = ctx.saved_tensors  # once: checkpointing gives them up only once
        own, *shared = ctx.parts
        found = kernel(slope, *saved, own, ctx.scale)
        for part in shared:
            more = kernel(slope, *saved, part, ctx.scale)
            for total, one, start in zip(found, more, (part.start, 0, 0), strict=True):
                total[:, :, start : start + one.shape[2]] += one
        return *found, None, None


def _cpu(
    query: Tensor, key: Tensor, value: Tensor, part: Part, scale: float
) -> tuple[Tensor, Tensor]:
    """[1, A, Q, D] outputs and [1, A, Q] log-sum-exps of the part's queries."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    outs, sums = zip(
        *(
            flash(query[:, :, q], key[:, :, k], value[:, :, k], 0.0, part.causal, scale=scale)
            for q, k in part.spans()
        ),
        strict=True,
    )
    return torch.cat(outs, 2), torch.cat(sums, 2)


def _cpu_backward(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    part: Part,
    scale: float,
) -> list[Tensor]:
    """Slopes [1, A, Q, D] of the part's queries and [1, K, P, D] of its keys and values."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    found = []
    for q, k in part.spans():
        sums = lse[:, :, q].contiguous()
        given = (slope[:, :, q], query[:, :, q], key[:, :, k], value[:, :, k], out[:, :, q], sums)
        found.append(flash(*given, 0.0, part.causal, scale=scale))
    return [torch.cat(slopes, 2) for slopes in zip(*found, strict=True)]


def _cuda(
    query: Tensor, key: Tensor, value: Tensor, part: Part, scale: float
) -> tuple[Tensor, Tensor]:
    """As `_cpu`, in one launch for all spans; half precision only."""
    q, k = part.reach()
    rows = [one[0, :, place].transpose(0, 1) for one, place in ((query, q), (key, k), (value, k))]
    flash = torch.ops.aten._flash_attention_forward
    out, lse, *_ = flash(*rows, *part.varlen(), 0.0, part.causal, False, scale=scale)
    return out.transpose(0, 1).unsqueeze(0), lse.unsqueeze(0)


def _cuda_backward(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    part: Part,
    scale: float,
) -> list[Tensor]:
    """As `_cpu_backward`."""
    q, k = part.reach()
    given = ((slope, q), (query, q), (key, k), (value, k), (out, q))
    rows = [one[0, :, place].transpose(0, 1) for one, place in given]
    unused = (
        torch.zeros(2, dtype=torch.uint64, device=slope.device),
        torch.empty(0, device=slope.device),
    )
    flash = torch.ops.aten._flash_attention_backward
    sums = lse[0, :, q].contiguous()
    found = flash(*rows, sums, *part.varlen(), 0.0, part.causal, *unused, scale=scale)
    return [one.transpose(0, 1).unsqueeze(0) for one in found]
