"""Reads prompts into a cache of transformers; and the plain memory of decoding, which is nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from assay.policy.forward import unwrapped

Prompt = tuple[int, ...]
READ_AT_ONCE = 16_384
"""Padded tokens of prompts in one forward pass."""
COMPACT_BELOW = 0.8
"""Share of live rows under which the plain memory drops the finished ones."""


def read(model: Any, prompts: Sequence[Prompt]) -> Iterator[tuple[Sequence[Prompt], Tensor, Any]]:
    """A part of `prompts` at a time, its logits of the next token [N, V], and its cache, padded on
    the left.
    """
    start = 0
    while start < len(prompts):
        end, width = start + 1, len(prompts[start])
        while (
            end < len(prompts) and (end + 1 - start) * max(width, len(prompts[end])) <= READ_AT_ONCE
        ):
            width = max(width, len(prompts[end]))
            end += 1
        logits, cache, _ = _read(model, prompts[start:end])
        yield prompts[start:end], logits, cache
        start = end


def _read(model: Any, prompts: Sequence[Prompt]) -> tuple[Tensor, Any, Tensor]:
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
    return forward(model, tokens, attention, positions, cache), cache, attention


def forward(model: Any, tokens: Tensor, attention: Tensor, positions: Tensor, cache: Any) -> Tensor:
    """[R, V] float32 logits of the next token; a full forward pass where `cache` is None.

    State-space models (Mamba) name their cache differently, and mask nothing after the prefill.
    """
    stateful = "cache_params" in signature(unwrapped(model).forward).parameters
    named = {"cache_params" if stateful else "past_key_values": cache}
    out = model(
        input_ids=tokens,
        attention_mask=None if stateful and attention.shape != tokens.shape else attention,
        position_ids=positions,
        use_cache=cache is not None,
        logits_to_keep=1,
        **named,
    )
    return out.logits[:, -1].float()  # type: ignore[no-any-return]


class TransformersCache:
    """Rows that begin together, in the cache that transformers has for the model: for any model,
    and slower.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.rows: list[int] = []
        self.cache: Any = None
        self.attention = torch.empty(0)

    @property
    def takes_more(self) -> bool:
        """Whether rows may be added: none before all have gone."""
        return not self.rows

    def add(self, prompts: Sequence[Prompt], prompt_tokens: int, own_tokens: int) -> Tensor:
        """[R, V] logits of the first tokens of new rows, one for each of `prompts`."""
        distinct = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
        logits, self.cache, attention = _read(self.model, list(distinct))
        spread = torch.tensor([distinct[prompt] for prompt in prompts], device=self.model.device)
        self._keep(spread, attention)
        return logits[spread]

    def _keep(self, rows: Tensor, attention: Tensor) -> None:
        self.cache.reorder_cache(rows)
        self.attention = attention[rows]
        self.rows = list(range(len(rows)))

    def drop(self, gone: Sequence[int], awaited: Prompt | None) -> list[int]:
        """Let rows go. Says which row is now at each place."""
        lost = set(gone)
        order = [row for row in range(len(self.rows)) if row not in lost]
        self.rows = [self.rows[row] for row in order]
        if self.rows and len(self.rows) < COMPACT_BELOW * len(self.attention):
            self._keep(torch.tensor(self.rows, device=self.model.device), self.attention)
        return order

    def step(self, tokens: Tensor) -> Tensor:
        """[R, V] logits after `tokens` [R], one for each row."""
        given = tokens.new_zeros((len(self.attention), 1))
        given[self.rows, 0] = tokens
        positions = self.attention.sum(-1, keepdim=True)
        self.attention = torch.cat([self.attention, torch.ones_like(self.attention[:, :1])], dim=-1)
        return forward(self.model, given, self.attention, positions, self.cache)[self.rows]
