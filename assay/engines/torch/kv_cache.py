"""The KV cache of decoding: it stores a prompt's keys and values once for all rows of its group,
and each row's completion beside them.

It stands behind transformers' Cache and attention interfaces, so it works for every model that
keeps to them. A row is one completion that is being generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.engines.torch.cuda_graphs import (
    Capture,
    CudaGraphs,
    DecodeStep,
    bucket,
    capture_on,
    wide_bucket,
)
from assay.engines.torch.fused import FusedDecoder
from assay.engines.torch.layer_cache import Capacity, LayerCache, compact
from assay.engines.torch.prefill import PREFILL_TOKENS, FinishedRows, Prompt, prefill

ATTENTION = "assay_kv_cache"
SHORT = 64
"""The keys and values of a prompt of up to so many tokens are copied for each of its rows, before
the completion's: that is faster than a matrix product that its rows share."""
AHEAD = 16
"""On a CPU rows get room for at least so many more tokens at a time."""
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments of some models' attention that `attend` does not implement."""


def _a_little_wider(used: int) -> int:
    """Attention reads all of a contiguous tensor up to twice as fast as a part of a wider one."""
    return used + max(AHEAD, used // 8)


@dataclass(slots=True)
class CachedRow:
    """A row: `shared` tokens of a prompt, which other rows share, and behind them `stored` ones:
    with a short prompt, which is copied, `shared` is 0.
    """

    prompt: int
    """Number of the prompt."""
    shared: int
    stored: int
    """Tokens behind the shared ones so far, and the position of the next one."""
    rollout: object
    """None where no turn can follow another."""


class KVCache:
    """The KV cache of all running rows, numbered from 0 without gaps. Rows are added and dropped
    at any step.
    """

    accepts_rows = True

    def __init__(
        self, model: Any, fused: FusedDecoder | None = None, short: int = SHORT,
        capture: Capture | None = None, finished: FinishedRows | None = None,
    ) -> None:  # fmt: skip
        capture = capture or capture_on(model.device)
        self.model = model
        self.prefill_tokens = PREFILL_TOKENS.get(model.device.type, PREFILL_TOKENS["cuda"])
        """Padded prompt tokens of rows that are best added at once; others join them later."""
        self.fused = fused
        self.finished = finished or FinishedRows()
        self.short = short
        self.size: Callable[[int], int] = bucket if capture else int
        self.width: Callable[[int], int] = wide_bucket if capture else int
        self.ahead: Callable[[int], int] = wide_bucket if capture else _a_little_wider
        self.longest = 0
        """The most tokens that a row may store behind the prompt that it shares."""
        self.graphs = CudaGraphs(self._forward, capture) if capture else None
        self.capacity = Capacity()
        self.layers: list[LayerCache] = []
        self.prompts: list[Prompt] = []
        self.first_logits: list[Tensor] = []
        self.rows: list[CachedRow] = []
        self.layout: tuple[Tensor, Tensor, Tensor] | None = None

    def add(
        self, prompts: Sequence[Prompt], prompt_tokens: int, completion_tokens: int,
        rollouts: Sequence[object] = (),
    ) -> Tensor:  # fmt: skip
        """[R, V] logits of the first tokens of new rows, one row for each of `prompts`. Each
        distinct prompt is prefilled once, but for what its rollout's last row has of it.

        No prompt is longer than `prompt_tokens`, and no completion than `completion_tokens`.
        """
        old, copied = set(self.prompts), min(prompt_tokens, self.short)
        self.longest = max(self.longest, copied + completion_tokens)
        rollouts = rollouts or [None] * len(prompts)
        new = {
            prompt: self.finished.take(rollout, prompt)
            for prompt, rollout in zip(prompts, rollouts, strict=True)
            if prompt not in old
        }
        self._reserve(len(prompts), len(new), prompt_tokens, copied)
        whole = [prompt for prompt in new if not new[prompt]]
        for batch in filter(None, (whole, [prompt for prompt in new if new[prompt]])):
            logits, cache, _ = prefill(self.model, {prompt: new[prompt] for prompt in batch})
            if not self.layers:
                self.layers = [
                    LayerCache(layer.keys, layer.values, self.capacity) for layer in cache.layers
                ]
            for row, prompt in enumerate(batch):
                for layer, source in zip(self.layers, cache.layers, strict=True):
                    layer.store(
                        len(self.prompts), source.keys[row], source.values[row], len(prompt)
                    )
                self.prompts.append(prompt)
                self.first_logits.append(logits[row])
        index = {prompt: number for number, prompt in enumerate(self.prompts)}
        self._copy_short([index[prompt] for prompt in prompts])
        for prompt, rollout in zip(prompts, rollouts, strict=True):
            copied = len(prompt) if len(prompt) <= self.short else 0
            self.rows.append(CachedRow(index[prompt], len(prompt) - copied, copied, rollout))
        self.layout = None
        return torch.stack([self.first_logits[index[prompt]] for prompt in prompts])

    def _copy_short(self, prompts: Sequence[int]) -> None:
        """Copy short prompts before the completions of new rows."""
        device, first = self.model.device, len(self.rows)
        for prompt in dict.fromkeys(prompts):
            length = len(self.prompts[prompt])
            rows = torch.tensor([n for n, other in enumerate(prompts, first) if other == prompt])
            for layer in self.layers if length <= self.short else ():
                for stored, tensor in zip(layer.completions, layer.prompts, strict=True):
                    stored[rows.to(device), :, :length] = tensor[prompt, :, :length]

    def _reserve(self, rows: int, prompts: int, prompt_tokens: int, used: int) -> None:
        """Make room for more rows and prompts, and for rows of `used` tokens. It grows by half at
        least, so copies are rare; but where rows get longer, there are only as many as are needed
        now. A CUDA graph holds addresses, so there they have room for all their tokens at once.
        """
        old, rows, prompts = (
            self.capacity,
            len(self.rows) + rows,
            len(self.prompts) + prompts,
        )

        def enough(needed: int, old: int, wider: bool) -> int:
            old = 0 if wider else old
            return old if needed <= old else self.size(max(needed, old * 3 // 2))

        prompt_width = max(old.prompt_width, self.width(prompt_tokens))
        wide = self.longest if self.graphs else min(self.longest, self.ahead(used))
        completion_width = max(old.completion_width, self.width(wide))
        self.capacity = Capacity(
            enough(rows, old.rows, completion_width > old.completion_width),
            enough(prompts, old.prompts, prompt_width > old.prompt_width),
            prompt_width,
            completion_width,
        )
        if self.capacity != old:
            self.finished.make_room(self.capacity.tokens)
            for layer in self.layers:
                layer.grow(self.capacity)
            if self.graphs:
                self.graphs.clear()

    def drop(self, finished: Mapping[int, Prompt], next_prompt: Prompt | None) -> list[int]:
        """Drop finished rows, and prompts that neither a row nor `next_prompt` needs. Returns the
        former number of each remaining row. The keys and values of the tokens given for a row are
        kept for its rollout.
        """
        for number, tokens in finished.items():
            self._keep(number, tokens)
        width = max(row.stored for row in self.rows) + 1
        completions = [layer.completions for layer in self.layers]
        order = compact(completions, len(self.rows), list(finished), width)
        self.rows = [self.rows[former] for former in order]
        needed = {row.prompt for row in self.rows}
        unneeded = [
            number
            for number, prompt in enumerate(self.prompts)
            if number not in needed and prompt != next_prompt
        ]
        prompts, width = [layer.prompts for layer in self.layers], self.capacity.prompt_width
        prompt_order = compact(prompts, len(self.prompts), unneeded, width)
        self.prompts = [self.prompts[old] for old in prompt_order]
        self.first_logits = [self.first_logits[old] for old in prompt_order]
        moved = {old: new for new, old in enumerate(prompt_order)}
        for row in self.rows:
            row.prompt = moved[row.prompt]
        self.layout = None
        return order

    def _keep(self, number: int, tokens: Prompt) -> None:
        """Keep the keys and values of a row under its `tokens`, of which the last has none yet."""
        row = self.rows[number]
        if tokens and self.finished.make_room(self.capacity.tokens + len(tokens)):
            parts = number, row.stored, row.prompt, row.shared
            self.finished.rows[row.rollout] = tokens, [layer.row(*parts) for layer in self.layers]

    def step(self, tokens: Tensor) -> Tensor:
        """[R, V] logits after `tokens` [R], one for each row."""
        rows = self.size(len(self.rows))
        self.layout = self.layout or self._arrange(rows)
        padding, lengths = rows - len(tokens), [row.stored for row in self.rows]
        positions = torch.tensor(lengths + [0] * padding, device=tokens.device)
        padded = torch.cat([tokens, tokens.new_zeros(padding)])
        shared = max(row.shared for row in self.rows)
        prompt_width = self.width(shared) if shared else 0
        used = max(lengths) + 1
        if used > self.capacity.completion_width:
            self._reserve(0, 0, 0, used)
        width = min(self.capacity.completion_width, self.ahead(used))
        step = DecodeStep(padded, positions, *self.layout, prompt_width, width)
        logits = self.graphs(step) if self.graphs else self._forward(step)
        for row in self.rows:
            row.stored += 1
        return logits[: len(tokens)]

    def _arrange(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """The step's prompt lengths, prompt rows and flat index."""
        groups: list[list[int]] = [[] for _ in self.prompts]
        for row, cached in enumerate(self.rows):
            groups[cached.prompt].append(row)
        wide = self.size(max(map(len, groups)))
        flat_index = [0] * rows
        for number, group in enumerate(groups):
            for column, row in enumerate(group):
                flat_index[row] = number * wide + column
        prompt_rows = [group + [0] * (wide - len(group)) for group in groups]
        prompt_rows += [[0] * wide] * (self.size(len(groups)) - len(groups))
        lengths = [cached.shared for cached in self.rows] + [0] * (rows - len(self.rows))
        return tuple(
            torch.tensor(part, device=self.model.device)
            for part in (lengths, prompt_rows, flat_index)
        )  # type: ignore[return-value]

    def _forward(self, step: DecodeStep) -> Tensor:
        view = _StepView(self.layers, step)
        if self.fused:
            return self.fused(step.tokens, step.prompt_lengths + step.positions, view.attend)
        with _attention(self.model.config.get_text_config()):
            out = self.model(
                input_ids=step.tokens.unsqueeze(-1),
                position_ids=(step.prompt_lengths + step.positions).unsqueeze(-1),
                past_key_values=view,
                use_cache=True,
                logits_to_keep=1,
            )
        if view.attended != len(self.layers):
            raise NotImplementedError("the model does not attend through its KV cache")
        return out.logits[:, -1].float()  # type: ignore[no-any-return]


class _StepView:
    """The KV cache as a model sees it during one step: its `update` returns a `_LayerView` in
    place of keys and values.
    """

    def __init__(self, layers: Sequence[LayerCache], step: DecodeStep) -> None:
        self.layers = layers
        self.step = step
        self.attended = 0
        device = step.tokens.device
        widths = step.prompt_width, step.completion_width
        prompt, completion = (torch.arange(width, device=device) for width in widths)
        hidden = torch.cat(
            [prompt >= step.prompt_lengths[:, None], completion > step.positions[:, None]], dim=-1
        )
        bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)
        self.bias = bias[:, None, None]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[_LayerView, _LayerView]:
        self.layers[layer_idx].write(keys, values, self.step)
        return (layer := _LayerView(self, self.layers[layer_idx])), layer

    def attend(
        self, number: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """[R, A * D], for the fused decoder."""
        self.layers[number].write(key, value, self.step)
        return self.layers[number].attend(query, scaling, self.step, self.bias).flatten(1)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.step.prompt_width + self.step.completion_width - 1


@dataclass(frozen=True, slots=True)
class _LayerView:
    view: _StepView
    layer: LayerCache


def attend(
    module: Any, query: Tensor, key: _LayerView, value: _LayerView, *_: Any, **keywords: Any
) -> tuple[Tensor, None]:
    """An attention function for transformers: one query for each row, through a `_StepView`."""
    if query.shape[2] != 1 or any(keywords.get(name) is not None for name in UNSUPPORTED):
        raise NotImplementedError("the KV cache does not implement this attention")
    key.view.attended += 1
    scaling = keywords.get("scaling") or query.shape[-1] ** -0.5
    return key.layer.attend(query, scaling, key.view.step, key.view.bias), None


@contextmanager
def _attention(config: Any) -> Iterator[None]:
    """Inside the block the model attends through `attend`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attend)
    usual = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = usual
