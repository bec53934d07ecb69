"""Writes completions token by token: rows leave the moment they end, and waiting ones take their
places.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from assay.engines.base import GenerationRequest, Sampling, cut_at
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import Prompt, TransformersCache
from assay.engines.torch.sampling import sample, uniforms
from assay.policy.chat import Chat
from assay.types import Completion

MOST_ROWS = 512
"""Completions written at once, however short; more wait for a place."""
FULL_ENOUGH = 0.8
"""Share of rows in use under which waiting ones are read in."""


@dataclass(slots=True, eq=False)
class PendingCompletion:
    """One completion in the making."""

    asked: GenerationRequest
    sampling: Sampling
    ended: asyncio.Future[Completion]
    given_up: bool = False
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> Prompt:
        """What is read before it goes on."""
        return self.asked.prompt + tuple(self.tokens)

    @property
    def tokens_left(self) -> int:
        """Tokens it may still get."""
        return self.sampling.max_tokens - len(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens it may come to with its prompt."""
        return len(self.asked.prompt) + self.sampling.max_tokens


def rows_at_once(tokens: int, longest: int) -> int:
    """As many rows of up to `longest` tokens as `tokens` have room for."""
    return min(MOST_ROWS, max(1, tokens // max(1, longest)))


class StopChecker:
    """Knows why a row ends, and what it says then."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.pieces: dict[int, str] = {}

    def completion(self, row: PendingCompletion) -> Completion | None:
        """What the row has come to; None while it goes on."""
        own = row.tokens[-1] in self.chat.stop_tokens
        cut = bool(row.asked.stop) and not own and self._is_cut(row)
        if not own and not cut and row.tokens_left > 0:
            return None
        text = self.chat.text(row.tokens)
        if cut:
            text = cut_at(text, row.asked.stop)
        ended: Literal["stop", "length"] = "stop" if own or cut else "length"
        return Completion(text, tuple(row.tokens), tuple(row.logprobs), ended, tuple(row.versions))

    def _is_cut(self, row: PendingCompletion) -> bool:
        """Whether a stop string ends within the last token. Most tokens lack its last character:
        they cost nothing.
        """
        last = row.tokens[-1]
        if last not in self.pieces:
            self.pieces[last] = self.chat.text([last])
        chunk = self.pieces[last]
        if chunk.isascii() and chunk and not any(word[-1] in chunk for word in row.asked.stop):
            return False
        window = (
            max(len(word.encode()) for word in row.asked.stop) + 4
        )  # a token is a byte at least
        tail = self.chat.text(row.tokens[-window:])
        return any(word in tail for word in row.asked.stop)


class DecodeLoop:
    """One stretch of writing with the same weights: from the first row that waits to the last, or
    until it is halted.

    `inbox` may be added to meanwhile, from another thread; what a halt leaves unfinished lies in it
    again.
    """

    def __init__(
        self,
        kv_cache: KVCache | TransformersCache,
        inbox: deque[PendingCompletion],
        stop_checker: StopChecker,
        version: int,
        tokens: int,
    ) -> None:
        self.kv_cache = kv_cache
        self.inbox = inbox
        self.stop_checker = stop_checker
        self.version = version
        self.tokens = tokens
        self.waiting: list[PendingCompletion] = []
        self.rows: list[PendingCompletion] = []
        self.prompt = self.own = 0

    @property
    def capacity(self) -> int:
        """Rows at once."""
        return rows_at_once(self.tokens, self.prompt + self.own)

    @torch.inference_mode()
    def run(
        self, halted: Callable[[], bool], deliver: Callable[[PendingCompletion, Completion], None]
    ) -> None:
        """Write until nothing waits."""
        logits = torch.empty(0)
        try:
            while not halted() and self._take_in():
                if self._may_add():
                    first = self._add()
                    logits = torch.cat([logits, first]) if len(first) < len(self.rows) else first
                tokens, logprobs = _sample_tokens(logits, self.rows)
                tokens = self._append_tokens(tokens, logprobs, deliver)
                if self.rows:
                    logits = self.kv_cache.step(tokens)
        finally:
            self.inbox.extendleft(reversed([*self.rows, *self.waiting]))

    def _take_in(self) -> bool:
        """Whether there is anything to write."""
        while self.inbox:
            row = self.inbox.popleft()
            if not row.given_up:
                self.waiting.append(row)
                self.prompt, self.own = (
                    max(self.prompt, len(row.prompt)),
                    max(self.own, row.tokens_left),
                )
        return bool(self.rows or self.waiting)

    def _may_add(self) -> bool:
        few = len(self.rows) <= FULL_ENOUGH * self.capacity and len(self.rows) < self.capacity
        return bool(self.waiting) and few and self.kv_cache.takes_more

    def _add(self) -> Tensor:
        """[R, V] logits of the first tokens of the rows that are read in."""
        free = self.capacity - len(self.rows)
        fresh, self.waiting = self.waiting[:free], self.waiting[free:]
        self.rows += fresh
        return self.kv_cache.add([row.prompt for row in fresh], self.prompt, self.own)

    def _append_tokens(
        self,
        tokens: Tensor,
        logprobs: Tensor,
        deliver: Callable[[PendingCompletion, Completion], None],
    ) -> Tensor:
        """The tokens of the rows that go on; the others are handed out and leave."""
        gone = []
        for place, (row, token, logprob) in enumerate(
            zip(self.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.versions.append(self.version)
            if completion := self.stop_checker.completion(row):
                deliver(row, completion)
            if completion or row.given_up:
                gone.append(place)
        if not gone:
            return tokens
        order = self.kv_cache.drop(gone, self.waiting[0].prompt if self.waiting else None)
        self.rows = [self.rows[old] for old in order]
        return tokens[torch.tensor(order, dtype=torch.int64, device=tokens.device)]


def _sample_tokens(logits: Tensor, rows: list[PendingCompletion]) -> tuple[Tensor, Tensor]:
    """[R] the next token of each row, and its log-probability."""
    device = logits.device
    streams, positions = zip(*((row.asked.seed, len(row.tokens)) for row in rows), strict=True)
    chances = uniforms(torch.tensor(streams, device=device), torch.tensor(positions, device=device))
    kinds: dict[Sampling, list[int]] = {}
    for place, row in enumerate(rows):
        kinds.setdefault(row.sampling, []).append(place)
    if len(kinds) == 1:
        return sample(logits, rows[0].sampling, chances)
    tokens, logprobs = (
        torch.empty(len(rows), dtype=torch.int64, device=device),
        torch.empty(len(rows), device=device),
    )
    for sampling, places in kinds.items():
        own = torch.tensor(places, device=device)
        tokens[own], logprobs[own] = sample(logits[own], sampling, chances[own])
    return tokens, logprobs
