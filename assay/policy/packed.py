"""Packed sequences: a micro-batch as one row, with varlen attention that keeps sequences apart.

Completions of one prompt share it (a shared prompt prefix): its tokens stand in the row once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from assay.policy.onednn import padding_rows
from assay.policy.source import head_size

ATTENTION = "assay_"
"""Prefix of the attention implementations registered here. Without segments they do what the name
behind the prefix says."""
ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types that `observed_windows` can tell apart."""
LONGEST = 1 << 17
"""No packed sequence is longer than this."""
IGNORED = {"scaling", "dropout", "is_causal", "position_ids", "use_cache", "sliding_window"}
"""Arguments of attention that do not change which tokens attend to which. Windows are in the masks
(`observed_windows`)."""


@dataclass(frozen=True, slots=True)
class Segments:
    """One varlen attention call: query segment n attends to key segment n, and to nothing else."""

    query_lengths: tuple[int, ...]
    """Lengths of the query segments, which lie end to end from `start`."""
    key_lengths: tuple[int, ...]
    """Lengths of the key segments, which lie end to end from 0."""
    start: int
    """Index of the first query in the row."""
    causal: bool
    """Whether a query attends only to keys up to its own position in the segment."""
    cumulative: tuple[Tensor, Tensor]
    """[segments + 1] int32 each: cumulative lengths of queries and of keys (`cu_seqlens`)."""

    def slices(self) -> list[tuple[slice, slice]]:
        """Where queries and keys are in the row, one pair per segment."""
        queries = pairwise(accumulate(self.query_lengths, initial=self.start))
        keys = pairwise(accumulate(self.key_lengths, initial=0))
        return [(slice(*q), slice(*k)) for q, k in zip(queries, keys, strict=True)]

    def extent(self) -> tuple[slice, slice]:
        """Where all queries and all keys are in the row."""
        end = self.start + sum(self.query_lengths)
        return slice(self.start, end), slice(0, sum(self.key_lengths))

    def varlen_arguments(self) -> tuple[Tensor, Tensor, int, int]:
        """Cumulative and largest lengths of queries and keys, as varlen kernels take them."""
        return *self.cumulative, max(self.query_lengths), max(self.key_lengths)


def _segments(
    queries: Sequence[int], keys: Sequence[int], start: int, causal: bool, device: torch.device
) -> Segments:
    sums = (
        torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
        for lengths in (queries, keys)
    )
    return Segments(tuple(queries), tuple(keys), start, causal, (next(sums), next(sums)))


@dataclass(frozen=True, slots=True)
class PackedRow:
    """A batch as one row of N tokens: shared prompts, completions, other sequences, padding."""

    tokens: Tensor
    """[N] int64."""
    positions: Tensor
    """[N] int64, the position of each token in its own sequence (position_ids)."""
    predictors: Tensor
    """[M] int64: for each masked token, in row-major order, the row index that predicts it."""
    segments: tuple[Segments, ...]
    """The attention calls: each sequence attends to itself, causally. Where prompts are shared, a
    second call lets each completion attend to its prompt."""


def pack(tokens: Tensor, mask: Tensor) -> PackedRow:
    """Pack `tokens` [B, T] int64; those in `mask` [B, T] bool are predicted.

    Sequences that are equal up to their first predicted token share that prompt. Tokens that no
    prediction depends on are left out.
    """
    device, texts = tokens.device, tokens.cpu()
    first, last = mask.int().argmax(-1), mask.shape[1] - 1 - mask.flip(-1).int().argmax(-1)
    firsts, lasts = first.tolist(), last.tolist()
    by_prompt: dict[bytes, list[int]] = {}
    for row in mask.any(-1).nonzero().squeeze(-1).tolist() or [0]:
        by_prompt.setdefault(texts[row, : firsts[row]].numpy().tobytes(), []).append(row)
    groups = [
        rows
        for rows in by_prompt.values()
        if len(rows) > 1 and any(firsts[row] < lasts[row] for row in rows)
    ]
    others = [row for rows in by_prompt.values() if rows not in groups for row in rows]
    spans = [(rows[0], 0, firsts[rows[0]]) for rows in groups]
    spans += [(row, firsts[row], lasts[row]) for rows in groups for row in rows]
    spans += [(row, 0, lasts[row]) for row in others]
    lengths = [end - begin for _, begin, end in spans]
    starts = list(accumulate(lengths, initial=0))

    places, shared = torch.zeros(texts.shape, dtype=torch.int64), len(groups)
    for (row, begin, end), start in zip(spans, starts, strict=False):
        places[row, begin:end] = torch.arange(start, start + end - begin)
    for rows in groups:
        places[rows, : firsts[rows[0]]] = places[rows[0], : firsts[rows[0]]]
    owner, token = mask.nonzero(as_tuple=True)
    padding = [0] * padding_rows(sum(lengths), device)
    sizes = [length for length in (*lengths, len(padding)) if length]
    segments = [_segments(sizes, sizes, 0, True, device)]
    completions = [sum(lasts[row] - firsts[row] for row in rows) for rows in groups]
    if groups:
        segments.append(_segments(completions, lengths[:shared], starts[shared], False, device))
    filled = torch.tensor(padding, dtype=torch.int64)
    packed = [texts[row, begin:end] for row, begin, end in spans]
    positions = [torch.arange(begin, end) for _, begin, end in spans]
    return PackedRow(
        tokens=torch.cat([*packed, filled]).to(device),
        positions=torch.cat([*positions, filled]).to(device),
        predictors=places.to(device)[owner, token - 1],
        segments=tuple(segments),
    )


def enable_packed_attention(model: Any) -> None:
    """Give a transformers model an attention that understands `segments`.

    Raises NotImplementedError if its layers are not all attention through PyTorch's SDPA.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    config = model.config.get_text_config()
    name = config._attn_implementation
    if name.startswith(ATTENTION):
        return
    if others := set(getattr(config, "layer_types", None) or ()) - ATTENTION_LAYERS:
        raise NotImplementedError(
            f"it has layers other than attention: {', '.join(sorted(others))}"
        )
    if name != "sdpa":
        raise NotImplementedError(f"its attention is {name!r}, not 'sdpa'")
    AttentionInterface.register(ATTENTION + name, partial(_attention, AttentionInterface()[name]))
    AttentionMaskInterface.register(ATTENTION + name, AttentionMaskInterface()[name])
    model.set_attn_implementation(ATTENTION + name)


@contextmanager
def observed_windows(model: Any) -> Iterator[list[int]]:
    """The windows of the attention masks that a model with packed attention makes meanwhile.

    A window is the longest sequence in which the last token attends to the first, up to LONGEST.
    It comes from the mask function itself: a sliding window or a chunk, however it is configured.
    """
    from transformers import AttentionMaskInterface

    name = model.config.get_text_config()._attn_implementation
    make_mask, windows = AttentionMaskInterface()[name], list[int]()
    queries = torch.arange(LONGEST, device=model.device)

    def observe(*arguments: Any, mask_function: Callable[..., Tensor], **keywords: Any) -> Any:
        visible = mask_function(queries[0], queries[0], queries, queries[0])
        windows.append(int(visible.long().cumprod(0).sum()) or LONGEST)  # 0: a mask of no layer
        return make_mask(*arguments, mask_function=mask_function, **keywords)

    AttentionMaskInterface.register(name, observe)
    try:
        yield windows
    finally:
        AttentionMaskInterface.register(name, make_mask)


def kept_by_attention(config: Any, device: str) -> int:
    """Numbers that packed attention keeps of one token for the backward pass: query, key, value and
    output. The CPU's kernel gives an output that the next projection copies.
    """
    heads = int(config.num_attention_heads)
    pairs = int(getattr(config, "num_key_value_heads", None) or heads)
    return head_size(config) * (heads * (3 if device == "cpu" else 2) + 2 * pairs)


def _attention(
    fallback: Any,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """Called by transformers: `query` [1, A, N, D], `key` and `value` [1, K, N, D] to [1, N, A, D].

    Without `segments`, the `fallback` attention runs.
    """
    segments = arguments.pop("segments", None)
    if segments is None:
        return fallback(module, query, key, value, attention_mask, **arguments)  # type: ignore[no-any-return]
    unknown = [
        name
        for name, option in arguments.items()
        if name not in IGNORED and option is not None and option is not False
    ]
    unknown += ["dropout"] if arguments.get("dropout") else []
    unknown += ["a mask that layers change"] if attention_mask.numel() > 1 else []
    if unknown:
        raise NotImplementedError(f"packed attention does not support {', '.join(unknown)}")
    scale = arguments.get("scaling") or query.shape[-1] ** -0.5
    output: Tensor = _VarlenAttention.apply(query, key, value, segments, scale)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2), None


class _VarlenAttention(torch.autograd.Function):
    """Softmax attention over several calls, merged by their log-sum-exps (as in ring attention).

    The backward pass of each call takes the merged output and log-sum-exp. Then p = exp(s - lse)
    and ds = p (dp - rowsum(dO * O)) are those of the whole softmax, so the gradients of the calls
    add up to the exact gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        segments: Sequence[Segments],
        scale: float,
    ) -> Tensor:
        kernel = _flash_cpu if query.device.type == "cpu" else _flash_cuda
        sequences, *to_prompts = segments
        inputs = query, key, value
        query, key, value = map(_fast_on_cpu, inputs)
        out, lse = kernel(query, key, value, sequences, scale)
        for prompts in to_prompts:
            more, more_lse = kernel(query, key, value, prompts, scale)
            here = slice(prompts.start, prompts.start + sum(prompts.query_lengths))
            merged = torch.logaddexp(lse[:, :, here], more_lse)
            share, rest = (
                (values - merged).exp_().unsqueeze(-1) for values in (lse[:, :, here], more_lse)
            )
            out[:, :, here] = out[:, :, here] * share + more * rest
            lse[:, :, here] = merged
        out = out.to(inputs[0].dtype)
        ctx.save_for_backward(*inputs, out, lse)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernel = _flash_cpu_backward if grad.device.type == "cpu" else _flash_cuda_backward
        saved = ctx.saved_tensors  # read once: gradient checkpointing allows no second read
        grad, *saved = map(_fast_on_cpu, (grad, *saved))
        sequences, *to_prompts = ctx.segments
        grads = kernel(grad, saved, sequences, ctx.scale)
        for prompts in to_prompts:
            more = kernel(grad, saved, prompts, ctx.scale)
            for total, part, start in zip(grads, more, (prompts.start, 0, 0), strict=True):
                total[:, :, start : start + part.shape[2]] += part
        return *grads, None, None  # autograd casts them


def _fast_on_cpu(values: Tensor) -> Tensor:
    """In float32 what is in bfloat16 on a CPU, whose attention is 25 times as slow backwards."""
    return values.float() if values.device.type == "cpu" else values


def _flash_cpu(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
) -> tuple[Tensor, Tensor]:
    """Outputs [1, A, Q, D] and log-sum-exps [1, A, Q] of the queries in `segments`.

    One key is subtracted from all, which adds a number to all scores of a query: softmax stays as
    it is (SageAttention, arXiv:2410.02367). Scores of Qwen2.5 are in the hundreds. Log-sum-exps of
    that size, rounded to float32, are too coarse to merge calls by.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    key = key - key[:, :, :1]
    outs, sums = zip(
        *(
            flash(query[:, :, q], key[:, :, k], value[:, :, k], 0.0, segments.causal, scale=scale)
            for q, k in segments.slices()
        ),
        strict=True,
    )
    return torch.cat(outs, 2), torch.cat(sums, 2)


def _flash_cpu_backward(
    grad: Tensor, saved: Sequence[Tensor], segments: Segments, scale: float
) -> list[Tensor]:
    """Gradients [1, A, Q, D] of the queries in `segments`, [1, K, P, D] of its keys and values.

    `saved`: queries, keys, values, outputs and log-sum-exps.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    query, key, value, out, lse = saved
    key = key - key[:, :, :1]
    grads = []
    for q, k in segments.slices():
        inputs = grad[:, :, q], query[:, :, q], key[:, :, k], value[:, :, k], out[:, :, q]
        grads.append(flash(*inputs, lse[:, :, q].contiguous(), 0.0, segments.causal, scale=scale))
    return [torch.cat(parts, 2) for parts in zip(*grads, strict=True)]


def _flash_cuda(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
) -> tuple[Tensor, Tensor]:
    """As `_flash_cpu`, in one varlen kernel launch; half precision only."""
    q, k = segments.extent()
    rows = [part[0, :, here].transpose(0, 1) for part, here in ((query, q), (key, k), (value, k))]
    flash = torch.ops.aten._flash_attention_forward
    sizes = segments.varlen_arguments()
    out, lse, *_ = flash(*rows, *sizes, 0.0, segments.causal, False, scale=scale)
    return out.transpose(0, 1).unsqueeze(0), lse.unsqueeze(0)


def _flash_cuda_backward(
    grad: Tensor, saved: Sequence[Tensor], segments: Segments, scale: float
) -> list[Tensor]:
    """As `_flash_cpu_backward`."""
    q, k = segments.extent()
    query, key, value, out, lse = saved
    inputs = ((grad, q), (query, q), (key, k), (value, k), (out, q))
    rows = [part[0, :, here].transpose(0, 1) for part, here in inputs]
    seed = torch.zeros(2, dtype=torch.uint64, device=grad.device)  # unused without dropout
    flash = torch.ops.aten._flash_attention_backward
    sums, sizes = lse[0, :, q].contiguous(), segments.varlen_arguments()
    options = 0.0, segments.causal, seed, torch.empty(0, device=grad.device)
    grads = flash(*rows, sums, *sizes, *options, scale=scale)
    return [part.transpose(0, 1).unsqueeze(0) for part in grads]
