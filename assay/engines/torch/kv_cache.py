"""The fast memory of decoding: keys and values of a prompt once for all its rows, each row's own
beside them.

Behind the calls of transformers' Cache and of its attention, so that every model that keeps to them
can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.engines.torch.fused import FusedDecoder
from assay.engines.torch.graphs import Graphs, bucket, wide_bucket
from assay.engines.torch.prefill import Prompt, read

ATTENTION = "assay_slots"
UNKNOWN = ("softcap", "s_aux", "position_bias", "sliding_window")
"""What some models ask of attention, and `attend` does not do."""


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """What one step needs to know of its R rows, N prompts and up to G rows of each."""

    tokens: Tensor
    """[R] to be read."""
    positions: Tensor
    """[R] tokens that the row has of its own before this one."""
    lengths: Tensor
    """[R] tokens of its prompt."""
    prompt_rows: Tensor
    """[N, G] the rows of each prompt; 0 where it has fewer."""
    back: Tensor
    """[R] where the row stands in `prompt_rows`, flattened."""
    prompt_width: int
    own_width: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in one order."""
        return self.tokens, self.positions, self.lengths, self.prompt_rows, self.back

    @property
    def shape(self) -> tuple[int, ...]:
        """Equal for steps that one recording serves: (R, N, G, prompt width, own width)."""
        return len(self.tokens), *self.prompt_rows.shape, self.prompt_width, self.own_width


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is memory for."""

    rows: int = 0
    prompts: int = 0
    prompt_width: int = 0
    own_width: int = 0


class LayerCache:
    """Keys and values of one layer: of prompts [N, H, P, D], and of rows [R, H, T, D]."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: Capacity) -> None:
        self.prompts = [
            _widened(like[:0], capacity.prompts, capacity.prompt_width) for like in (keys, values)
        ]
        self.own = [
            _widened(like[:0], capacity.rows, capacity.own_width) for like in (keys, values)
        ]

    def widen(self, capacity: Capacity) -> None:
        """Make room; what there is stays."""
        self.prompts = [
            _widened(kept, capacity.prompts, capacity.prompt_width) for kept in self.prompts
        ]
        self.own = [_widened(kept, capacity.rows, capacity.own_width) for kept in self.own]

    def write(self, keys: Tensor, values: Tensor, step: DecodeStep) -> None:
        """The token that is being read: [R, H, 1, D]."""
        rows = torch.arange(len(step.tokens), device=keys.device)
        for kept, new in zip(self.own, (keys, values), strict=True):
            kept[rows, :, step.positions] = new[:, :, 0].to(kept.dtype)

    def attend(self, query: Tensor, scaling: float, step: DecodeStep, bias: Tensor) -> Tensor:
        """[R, 1, heads, D] of `query` [R, heads, 1, D]. Rows of a prompt go through its keys
        by_prompt.
        """
        rows, heads, _, size = query.shape
        (prompts, groups), narrow, width = step.prompt_rows.shape, step.prompt_width, step.own_width
        prompt_keys, prompt_values = (kept[:prompts, :, :narrow] for kept in self.prompts)
        keys, values = (kept[:rows, :, :width] for kept in self.own)
        shared = keys.shape[1]
        asked = (query.to(keys.dtype) * scaling).view(rows, shared, heads // shared, size)

        def by_prompt(each: Tensor) -> Tensor:
            return (
                each[step.prompt_rows].transpose(1, 2).reshape(prompts, shared, -1, each.shape[-1])
            )

        def by_row(all_of_them: Tensor) -> Tensor:
            spread = all_of_them.view(prompts, shared, groups, heads // shared, -1).transpose(1, 2)
            return spread.reshape(prompts * groups, shared, heads // shared, -1)[step.back]

        of_prompt = by_row(by_prompt(asked) @ prompt_keys.transpose(-1, -2))
        scores = torch.cat([of_prompt, asked @ keys.transpose(-1, -2)], dim=-1).float()
        weights = scores.add_(bias).softmax(-1).to(keys.dtype)
        seen = (
            by_row(by_prompt(weights[..., :narrow]) @ prompt_values)
            + weights[..., narrow:] @ values
        )
        return seen.reshape(rows, 1, heads, -1).to(query.dtype)


def _widened(kept: Tensor, rows: int, width: int) -> Tensor:
    """[rows, H, width, D] with `kept` in its corner, in float32 on a CPU, where bf16 attention is
    slower.
    """
    dtype = torch.float32 if kept.device.type == "cpu" else kept.dtype
    wide = torch.zeros((rows, kept.shape[1], width, kept.shape[3]), dtype=dtype, device=kept.device)
    if len(kept):
        wide[: len(kept), :, : kept.shape[2]] = kept
    return wide


class KVCache:
    """Rows that are being written, dense from 0: they are added and dropped at any time."""

    takes_more = True

    def __init__(self, model: Any, fused: FusedDecoder | None = None) -> None:
        self.model = model
        self.fused = fused
        cuda = model.device.type == "cuda"
        self.size: Callable[[int], int] = bucket if cuda else int
        self.width: Callable[[int], int] = wide_bucket if cuda else int
        self.graphs = Graphs(self._forward) if cuda else None
        self.capacity = Capacity()
        self.layers: list[LayerCache] = []
        self.prompts: list[Prompt] = []
        self.first: list[Tensor] = []
        self.prompt_index: list[int] = []
        self.positions: list[int] = []
        self.layout: tuple[Tensor, Tensor, Tensor] | None = None

    def add(self, prompts: Sequence[Prompt], prompt_tokens: int, own_tokens: int) -> Tensor:
        """[R, V] logits of the first tokens of new rows, one for each of `prompts`; each is read
        once.

        No prompt is longer than `prompt_tokens`, and no row gets more than `own_tokens`.
        """
        known = set(self.prompts)
        fresh = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
        self._reserve(len(prompts), len(fresh), prompt_tokens, own_tokens)
        for chunk, logits, cache in read(self.model, fresh):
            if not self.layers:
                self.layers = [
                    LayerCache(layer.keys, layer.values, self.capacity) for layer in cache.layers
                ]
            for place, prompt in enumerate(chunk):
                for layer, found in zip(self.layers, cache.layers, strict=True):
                    for kept, new in zip(layer.prompts, (found.keys, found.values), strict=True):
                        kept[len(self.prompts), :, : len(prompt)] = new[place, :, -len(prompt) :]
                self.prompts.append(prompt)
                self.first.append(logits[place])
        places = {prompt: place for place, prompt in enumerate(self.prompts)}
        self.prompt_index += [places[prompt] for prompt in prompts]
        self.positions += [0] * len(prompts)
        self.layout = None
        return torch.stack([self.first[places[prompt]] for prompt in prompts])

    def _reserve(self, rows: int, prompts: int, prompt_tokens: int, own_tokens: int) -> None:
        """For so many more rows and prompts; a half more than that where there was not enough, not
        to move often.
        """
        old, rows, prompts = (
            self.capacity,
            len(self.prompt_index) + rows,
            len(self.prompts) + prompts,
        )
        self.capacity = Capacity(
            old.rows if rows <= old.rows else self.size(max(rows, old.rows * 3 // 2)),
            old.prompts
            if prompts <= old.prompts
            else self.size(max(prompts, old.prompts * 3 // 2)),
            max(old.prompt_width, self.width(prompt_tokens)),
            max(old.own_width, self.width(own_tokens)),
        )
        if self.capacity != old:
            for layer in self.layers:
                layer.widen(self.capacity)
            self.graphs = (
                Graphs(self._forward) if self.graphs else None
            )  # a recording knows places in memory

    def drop(self, gone: Sequence[int], awaited: Prompt | None) -> list[int]:
        """Let rows go, and prompts that neither rows nor `awaited` need. Says which row is now at
        each place.
        """
        order = self._close(
            [layer.own for layer in self.layers],
            len(self.prompt_index),
            gone,
            max(self.positions) + 1,
        )
        self.prompt_index, self.positions = (
            [them[row] for row in order] for them in (self.prompt_index, self.positions)
        )
        needed = {
            *self.prompt_index,
            *(place for place, prompt in enumerate(self.prompts) if prompt == awaited),
        }
        unneeded = [place for place in range(len(self.prompts)) if place not in needed]
        kept = self._close(
            [layer.prompts for layer in self.layers],
            len(self.prompts),
            unneeded,
            self.capacity.prompt_width,
        )
        self.prompts, self.first = (
            [self.prompts[old] for old in kept],
            [self.first[old] for old in kept],
        )
        moved = {old: new for new, old in enumerate(kept)}
        self.prompt_index = [moved[home] for home in self.prompt_index]
        self.layout = None
        return order

    def _close(
        self, layers: Sequence[list[Tensor]], count: int, gone: Sequence[int], width: int
    ) -> list[int]:
        """Move what stands last into the holes."""
        left, lost = count - len(gone), set(gone)
        holes = [place for place in gone if place < left]
        movers = [place for place in range(left, count) if place not in lost]
        order = list(range(left))
        if holes:
            to, source = (
                torch.tensor(places, device=self.model.device) for places in (holes, movers)
            )
            for tensor in (tensor for layer in layers for tensor in layer):
                tensor[to, :, :width] = tensor[source, :, :width]
            for hole, mover in zip(holes, movers, strict=True):
                order[hole] = mover
        return order

    def step(self, tokens: Tensor) -> Tensor:
        """[R, V] logits after `tokens` [R], one for each row."""
        rows = self.size(len(self.prompt_index))
        self.layout = lengths, prompt_rows, back = self.layout or self._arrange(rows)
        device, short = tokens.device, rows - len(tokens)
        positions = torch.tensor(self.positions + [0] * short, device=device)
        padded = torch.cat([tokens, tokens.new_zeros(short)])
        narrow = self.width(max(len(self.prompts[home]) for home in self.prompt_index))
        step = DecodeStep(
            padded,
            positions,
            lengths,
            prompt_rows,
            back,
            narrow,
            self.width(max(self.positions) + 1),
        )
        logits = self.graphs(step) if self.graphs else self._forward(step)
        self.positions = [age + 1 for age in self.positions]
        return logits[: len(tokens)]

    def _arrange(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        members: list[list[int]] = [[] for _ in self.prompts]
        for row, home in enumerate(self.prompt_index):
            members[home].append(row)
        wide = self.size(max(map(len, members)))
        back = [0] * rows
        for home, group in enumerate(members):
            for column, row in enumerate(group):
                back[row] = home * wide + column
        prompt_rows = [group + [0] * (wide - len(group)) for group in members]
        prompt_rows += [[0] * wide] * (self.size(len(prompt_rows)) - len(prompt_rows))
        lengths = [len(self.prompts[home]) for home in self.prompt_index] + [0] * (
            rows - len(self.prompt_index)
        )
        return tuple(
            torch.tensor(them, device=self.model.device) for them in (lengths, prompt_rows, back)
        )  # type: ignore[return-value]

    def _forward(self, step: DecodeStep) -> Tensor:
        view = _View(self.layers, step)
        if self.fused:
            return self.fused(step.tokens, step.lengths + step.positions, view.attend)
        with _attention(self.model.config.get_text_config()):
            out = self.model(
                input_ids=step.tokens.unsqueeze(-1),
                position_ids=(step.lengths + step.positions).unsqueeze(-1),
                past_key_values=view,
                use_cache=True,
                logits_to_keep=1,
            )
        if view.attended != len(self.layers):
            raise NotImplementedError("the model does not attend through its cache")
        return out.logits[:, -1].float()  # type: ignore[no-any-return]


class _View:
    """The memory during one step, as a model sees it: what it gets back for keys and values is
    `_Seen`.
    """

    def __init__(self, layers: Sequence[LayerCache], step: DecodeStep) -> None:
        self.layers = layers
        self.now = step
        self.attended = 0
        device = step.tokens.device
        columns = [
            torch.arange(width, device=device) for width in (step.prompt_width, step.own_width)
        ]
        hidden = [
            columns[0] >= step.lengths.unsqueeze(-1),
            columns[1] > step.positions.unsqueeze(-1),
        ]
        both = torch.cat(hidden, dim=-1)
        self.bias = torch.zeros(both.shape, device=device).masked_fill_(both, -torch.inf)[
            :, None, None
        ]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[_Seen, _Seen]:
        self.layers[layer_idx].write(keys, values, self.now)
        return (seen := _Seen(self, self.layers[layer_idx])), seen

    def attend(
        self, number: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """[R, A * D] for steps that go without transformers."""
        self.layers[number].write(key, value, self.now)
        return self.layers[number].attend(query, scaling, self.now, self.bias).flatten(1)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.now.prompt_width + self.now.own_width - 1


@dataclass(frozen=True, slots=True)
class _Seen:
    view: _View
    layer: LayerCache


def attend(
    module: Any, query: Tensor, key: _Seen, value: _Seen, *_: Any, **named: Any
) -> tuple[Tensor, None]:
    """An attention of transformers: one query for each row, through a `_View`."""
    if query.shape[2] != 1 or any(named.get(name) is not None for name in UNKNOWN):
        raise NotImplementedError("an attention that slots do not know")
    key.view.attended += 1
    scaling = named.get("scaling") or query.shape[-1] ** -0.5
    return key.layer.attend(query, scaling, key.view.now, key.view.bias), None


@contextmanager
def _attention(config: Any) -> Iterator[None]:
    """The model attends through `attend` meanwhile."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attend)
    usual = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = usual
