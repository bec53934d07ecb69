"""Prefill, and a thin wrapper around transformers' DynamicCache."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from assay.policy.forward import unwrap_model

Prompt = tuple[int, ...]
PREFILL_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Padded prompt tokens in one forward pass, by device."""
COMPACT_BELOW = 0.8
"""`TransformersCache` drops finished rows when fewer than this share is running."""


def prefill_tokens(model: Any) -> int:
    """Padded prompt tokens in one forward pass of `model`."""
    return PREFILL_TOKENS.get(model.device.type, PREFILL_TOKENS["cuda"])


def prefill(
    model: Any, prompts: Sequence[Prompt]
) -> Iterator[tuple[Sequence[Prompt], Tensor, Any]]:
    """Prefill `prompts` in batches: the N prompts of a batch, logits of their next tokens [N, V],
    and their KV cache, padded on the left.
    """
    while prompts:
        count = rows_of_one_pass(prompts, prefill_tokens(model))
        batch, prompts = prompts[:count], prompts[count:]
        logits, cache, _ = _prefill_batch(model, batch)
        yield batch, logits, cache


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


def _prefill_batch(model: Any, prompts: Sequence[Prompt]) -> tuple[Tensor, Any, Tensor]:
    from transformers import DynamicCache

    width = max(map(len, prompts))
    tokens = torch.tensor(
        [(prompt[0],) * (width - len(prompt)) + prompt for prompt in prompts], device=model.device
    )
    attention = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    )
    attention = attention.to(model.device)
    cache = DynamicCache(config=model.config)
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    return next_logits(model, tokens, attention, positions, cache), cache, attention


def next_logits(
    model: Any, tokens: Tensor, attention: Tensor, positions: Tensor, cache: Any
) -> Tensor:
    """[R, V] float32 logits of the next token; a full forward pass where `cache` is None.

    State-space models (Mamba) name their cache differently, and mask nothing after the prefill.
    """
    is_stateful = "cache_params" in signature(unwrap_model(model).forward).parameters
    named = {"cache_params" if is_stateful else "past_key_values": cache}
    out = model(
        input_ids=tokens,
        attention_mask=None if is_stateful and attention.shape != tokens.shape else attention,
        position_ids=positions,
        use_cache=cache is not None,
        logits_to_keep=1,
        **named,
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

    def add(self, prompts: Sequence[Prompt], prompt_tokens: int, completion_tokens: int) -> Tensor:
        """[R, V] logits of the first tokens of new rows, one row for each of `prompts`."""
        distinct = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        logits, self.cache, attention = _prefill_batch(self.model, list(distinct))
        spread = torch.tensor([distinct[prompt] for prompt in prompts], device=self.model.device)
        self._select(spread, attention)
        return logits[spread]

    def _select(self, rows: Tensor, attention: Tensor) -> None:
        self.cache.reorder_cache(rows)
        self.attention = attention[rows]
        self.rows = list(range(len(rows)))

    def drop(self, finished: Sequence[int], next_prompt: Prompt | None) -> list[int]:
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
