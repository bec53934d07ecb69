"""Prefill, and a thin wrapper around transformers' DynamicCache."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from assay.policy.forward import unwrap_model

Prompt = tuple[int, ...]
Prefix = Sequence[tuple[Tensor, Tensor]]
"""Keys and values [H, T, D] of the first T tokens of a prompt, in each layer."""
PREFILL_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Padded prompt tokens in one forward pass, by device."""
COMPACT_BELOW = 0.8
"""`TransformersCache` drops finished rows when fewer than this share is running."""


class FinishedRows:
    """Keys and values of the last row of each rollout that may have another turn, as long as the
    rollout lives; in all of up to `limit` tokens, those of running rows included.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.rows: WeakKeyDictionary[object, tuple[Prompt, Prefix]] = WeakKeyDictionary()

    def make_room(self, tokens: int) -> bool:
        """Forget the oldest rows until `tokens` fit beside the others; whether they do."""
        sizes = {rollout: len(tokens) for rollout, (tokens, _) in self.rows.items()}
        excess = tokens + sum(sizes.values()) - self.limit
        for rollout, size in sizes.items():
            if excess > 0:
                del self.rows[rollout]
                excess -= size
        return excess <= 0

    def take(self, rollout: object, prompt: Prompt) -> Prefix:
        """Forget the row of a rollout: the part of it with which `prompt` begins."""
        tokens, prefix = self.rows.pop(rollout, ((), ())) if rollout is not None else ((), ())
        pairs = enumerate(zip(tokens, prompt[:-1], strict=False))
        equal = next(
            (n for n, (old, new) in pairs if old != new), min(len(tokens), len(prompt) - 1)
        )
        return [(keys[:, :equal], values[:, :equal]) for keys, values in prefix if equal]


def rows_of_one_pass(prompts: Iterable[Prompt], tokens: int) -> int:
    """How many of the first rows have distinct prompts of at most `tokens` padded tokens in all; at
    least one, if there is any.
    """
    distinct, longest, count = set[Prompt](), 0, 0
    for count, prompt in enumerate(prompts, 1):
        distinct.add(prompt)
        longest = max(longest, len(prompt))
        if count > 1 and len(distinct) * longest > tokens:
            return count - 1
    return count


def prefill(model: Any, prompts: Mapping[Prompt, Prefix]) -> tuple[Tensor, Any, Tensor]:
    """Prefill N distinct prompts, each behind its prefix, in one forward pass: logits of their next
    tokens [N, V], and their KV cache and attention mask [N, P], padded on the left. All prefixes
    are cut so that the pass has equally many columns of each prompt.
    """
    from transformers import DynamicCache

    width = max(map(len, prompts))
    tokens = torch.tensor(
        [(prompt[0],) * (width - len(prompt)) + prompt for prompt in prompts], device=model.device
    )
    attention = torch.tensor(
        [[0] * (width - n) + [1] * n for n in map(len, prompts)], device=model.device
    )
    cache = DynamicCache(config=model.config)
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    new = max(
        len(prompt) - (prefix[0][0].shape[1] if prefix else 0) for prompt, prefix in prompts.items()
    )
    widths = [max(0, len(prompt) - new) for prompt in prompts]
    for number, layer in enumerate(zip(*prompts.values(), strict=True) if new < width else ()):
        keys, values = (_stacked(tensors, widths) for tensors in zip(*layer, strict=True))
        cache.update(keys, values, number)
    tokens, positions = tokens[:, -new:], positions[:, -new:]
    return next_logits(model, tokens, attention, positions, cache), cache, attention


def _stacked(tensors: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """[N, H, P, D] of the first `widths` tokens of N tensors [H, T, D], padded on the left."""
    cut = [tensor[:, :width].transpose(0, 1) for tensor, width in zip(tensors, widths, strict=True)]
    return pad_sequence(cut, batch_first=True, padding_side="left").transpose(1, 2)


def next_logits(
    model: Any, tokens: Tensor, attention: Tensor, positions: Tensor, cache: Any
) -> Tensor:
    """[R, V] float32 logits of the next token; a full forward pass where `cache` is None.

    State-space models (Mamba) name their cache differently, and mask nothing after the prefill.
    """
    is_stateful = "cache_params" in signature(unwrap_model(model).forward).parameters
    keywords = {"cache_params" if is_stateful else "past_key_values": cache}
    # A number would cut a view of the hidden states, and then torch multiplies with a copy of the
    # head's weights for each row: in bfloat16 up to 400 times slower. An index copies the states.
    last = torch.tensor([-1], device=tokens.device)
    out = model(
        input_ids=tokens,
        attention_mask=None if is_stateful and attention.shape != tokens.shape else attention,
        position_ids=positions,
        use_cache=cache is not None,
        logits_to_keep=last,
        **keywords,
    )
    return out.logits[:, -1].float()  # type: ignore[no-any-return]


class TransformersCache:
    """Rows that start together in the DynamicCache of transformers: slower than `KVCache`, but for
    any model, hybrid and state-space models included.
    """

    prefill_tokens = sys.maxsize
    """All rows must start together."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.rows: list[int] = []
        self.cache: Any = None
        self.attention = torch.empty(0)

    @property
    def accepts_rows(self) -> bool:
        """Whether rows may be added: only when none is running."""
        return not self.rows

    def add(self, prompts: Sequence[Prompt], *_: Any) -> Tensor:
        """[R, V] logits of the first tokens of new rows, one row for each of `prompts`."""
        distinct = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        logits, self.cache, attention = prefill(self.model, dict.fromkeys(prompts, ()))
        spread = torch.tensor([distinct[prompt] for prompt in prompts], device=self.model.device)
        self._select(spread, attention)
        return logits[spread]

    def _select(self, rows: Tensor, attention: Tensor) -> None:
        self.cache.reorder_cache(rows)
        self.attention = attention[rows]
        self.rows = list(range(len(rows)))

    def drop(self, finished: Mapping[int, Prompt], next_prompt: Prompt | None) -> list[int]:
        """Drop finished rows. Returns the former number of each remaining row."""
        dropped = set(finished)
        order = [row for row in range(len(self.rows)) if row not in dropped]
        self.rows = [self.rows[row] for row in order]
        if self.rows and len(self.rows) < COMPACT_BELOW * len(self.attention):
            self._select(torch.tensor(self.rows, device=self.model.device), self.attention)
        return order

    def step(self, tokens: Tensor) -> Tensor:
        """[R, V] logits after `tokens` [R], one for each row."""
        all_tokens = tokens.new_zeros((len(self.attention), 1))
        all_tokens[self.rows, 0] = tokens
        positions = self.attention.sum(-1, keepdim=True)
        self.attention = torch.cat([self.attention, torch.ones_like(self.attention[:, :1])], dim=-1)
        logits = next_logits(self.model, all_tokens, self.attention, positions, self.cache)
        return logits[self.rows]
