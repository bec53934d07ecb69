"""Keys and values of one layer, for all rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.engines.torch.cuda_graphs import DecodeStep


@dataclass(frozen=True, slots=True)
class Capacity:
    """The allocated size of the KV cache."""

    rows: int = 0
    prompts: int = 0
    prompt_width: int = 0
    completion_width: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that fit into it."""
        return self.rows * self.completion_width + self.prompts * self.prompt_width


class LayerCache:
    """Keys and values of one layer: of prompts [N, H, P, D], and of completions [R, H, T, D]."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: Capacity) -> None:
        self.prompts = self.completions = [keys[:0], values[:0]]
        self.dtype = keys.dtype
        self.grow(capacity)

    def grow(self, capacity: Capacity) -> None:
        """Allocate tensors of another size, and keep the rows that fit."""
        rows, width = capacity.rows, capacity.completion_width
        self.prompts = [
            _grown(old, capacity.prompts, capacity.prompt_width) for old in self.prompts
        ]
        self.completions = [_grown(old, rows, width) for old in self.completions]

    def write(self, keys: Tensor, values: Tensor, step: DecodeStep) -> None:
        """Store keys and values [R, H, 1, D] of the step's tokens."""
        rows = torch.arange(len(step.tokens), device=keys.device)
        for stored, new in zip(self.completions, (keys, values), strict=True):
            stored[rows, :, step.positions] = new[:, :, 0].to(stored.dtype)

    def store(self, prompt: int, keys: Tensor, values: Tensor, length: int) -> None:
        """Store the last `length` keys and values [H, T, D] of a prompt."""
        for stored, new in zip(self.prompts, (keys, values), strict=True):
            stored[prompt, :, :length] = new[:, -length:]

    def row(self, row: int, stored: int, prompt: int, shared: int) -> tuple[Tensor, Tensor]:
        """Keys and values [H, T, D] of a row: `shared` tokens of a prompt, and `stored` ones."""
        keys, values = (
            torch.cat([of_prompts[prompt, :, :shared], of_rows[row, :, :stored]], dim=1)
            for of_prompts, of_rows in zip(self.prompts, self.completions, strict=True)
        )
        return keys.to(self.dtype), values.to(self.dtype)

    def attend(self, query: Tensor, scaling: float, step: DecodeStep, bias: Tensor) -> Tensor:
        """Attention of `query` [R, heads, 1, D]: [R, 1, heads, D]. The rows of a prompt are
        multiplied with its keys in one product.
        """
        rows, heads, _, size = query.shape
        prompts, groups = step.prompt_rows.shape
        narrow, width = step.prompt_width, step.completion_width
        prompt_keys, prompt_values = (stored[:prompts, :, :narrow] for stored in self.prompts)
        keys, values = (stored[:rows, :, :width] for stored in self.completions)
        kv_heads, per_kv = keys.shape[1], heads // keys.shape[1]
        scaled = (query.to(keys.dtype) * scaling).view(rows, kv_heads, per_kv, size)
        if not narrow:
            scores = (scaled @ keys.transpose(-1, -2)).float()
            attended = scores.add_(bias).softmax(-1).to(keys.dtype) @ values
            return attended.view(rows, 1, heads, -1).to(query.dtype)

        def by_prompt(of_rows: Tensor) -> Tensor:
            grouped = of_rows[step.prompt_rows].transpose(1, 2)
            return grouped.reshape(prompts, kv_heads, -1, of_rows.shape[-1])

        def by_row(of_prompts: Tensor) -> Tensor:
            spread = of_prompts.view(prompts, kv_heads, groups, per_kv, -1).transpose(1, 2)
            return spread.reshape(prompts * groups, kv_heads, per_kv, -1)[step.flat_index]

        prompt_scores = by_row(by_prompt(scaled) @ prompt_keys.transpose(-1, -2))
        scores = torch.cat([prompt_scores, scaled @ keys.transpose(-1, -2)], dim=-1).float()
        weights = scores.add_(bias).softmax(-1).to(keys.dtype)
        of_prompt = by_row(by_prompt(weights[..., :narrow]) @ prompt_values)
        attended = of_prompt + weights[..., narrow:] @ values
        return attended.reshape(rows, 1, heads, -1).to(query.dtype)


def _grown(old: Tensor, rows: int, width: int) -> Tensor:
    """[rows, H, width, D] with what fits of `old` in its corner; float32 on a CPU, where bfloat16
    attention is slower.
    """
    dtype = torch.float32 if old.device.type == "cpu" else old.dtype
    new = torch.zeros((rows, old.shape[1], width, old.shape[3]), dtype=dtype, device=old.device)
    if len(rest := old[:rows]):
        new[: len(rest), :, : old.shape[2]] = rest
    return new


def compact(
    layers: Sequence[list[Tensor]], count: int, dropped: Sequence[int], width: int
) -> list[int]:
    """Move the last of `count` entries into the gaps. Returns the former number of each entry."""
    left = count - len(dropped)
    gaps = [number for number in dropped if number < left]
    movers = sorted(set(range(left, count)).difference(dropped))
    moved = dict(zip(gaps, movers, strict=True))
    for tensor in (tensor for layer in layers for tensor in layer):
        used = tensor[:, :, :width]
        for gap, mover in moved.items():
            used[gap].copy_(used[mover])  # faster than one assignment of all
    return [moved.get(number, number) for number in range(left)]
