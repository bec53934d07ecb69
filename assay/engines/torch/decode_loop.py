"""The decode loop: continuous batching. A row leaves the moment it ends, and a waiting one takes
its place.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.engines.base import Sampling
from assay.engines.completions import PendingCompletion, StopChecker
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import TransformersCache, rows_of_one_pass
from assay.engines.torch.sampling import sample, uniforms
from assay.types import Completion

MAX_ROWS = 512
"""Completions that are generated at once, however short."""
Deliver = Callable[["DecodeRow", Completion], None]
REFILL_BELOW = 0.8
"""Waiting rows are prefilled when at most this share of rows is in use."""
HOLD = 1.0
"""On a CPU, seconds after which a completion is delivered, unless more wait than rows run."""


@dataclass(slots=True, eq=False)
class DecodeRow(PendingCompletion):
    """A completion that waits or is being generated: a row of the KV cache."""

    result: asyncio.Future[Completion] = field(kw_only=True)
    cancelled: bool = False


def rows_at_once(tokens: int, longest: int) -> int:
    """How many rows of up to `longest` tokens fit into a KV cache of `tokens` tokens."""
    return min(MAX_ROWS, max(1, tokens // max(1, longest)))


@dataclass(slots=True)
class Outbox:
    """Delivers completions that have ended, many at once.

    On a CPU a judged program takes a core from a decode step, whose other threads wait. Judging
    twenty programs at once costs decoding less than judging them one by one.
    """

    deliver: Deliver
    hold: float
    waiting: list[tuple[DecodeRow, Completion]] = field(default_factory=list)
    since: float = 0.0

    def add(self, row: DecodeRow, completion: Completion) -> None:
        """The completion waits until `flush`."""
        self.since = self.since if self.waiting else time.monotonic()
        self.waiting.append((row, completion))

    def is_due(self, running: int) -> bool:
        """Whether the oldest has waited `hold` seconds, or more wait than rows are `running`."""
        return len(self.waiting) > running or time.monotonic() - self.since >= self.hold

    def flush(self) -> None:
        """Deliver all."""
        for row, completion in self.waiting:
            self.deliver(row, completion)
        self.waiting.clear()


@dataclass(slots=True)
class DecodeLoop:
    """Decodes with one version of the weights until no row waits, or until it is halted.

    Another thread may add to `inbox` meanwhile. After a halt it holds the unfinished rows again.
    """

    kv_cache: KVCache | TransformersCache
    inbox: deque[DecodeRow]
    stop_checker: StopChecker
    version: int
    kv_cache_tokens: int
    waiting: list[DecodeRow] = field(default_factory=list)
    rows: list[DecodeRow] = field(default_factory=list)
    longest_prompt: int = 0
    longest_completion: int = 0

    @property
    def capacity(self) -> int:
        """How many rows run at once."""
        return rows_at_once(self.kv_cache_tokens, self.longest_prompt + self.longest_completion)

    @torch.inference_mode()
    def run(
        self, is_halted: Callable[[], bool], deliver: Deliver,
        count: Callable[[int], None] = lambda tokens: None,
    ) -> None:  # fmt: skip
        """Decode; `deliver` gets the completions that end (on a CPU many at once: `Outbox`), and
        `count` the number of tokens that each step samples.
        """
        is_on_cpu = self.kv_cache.model.device.type == "cpu"
        logits, outbox = torch.empty(0), Outbox(deliver, HOLD if is_on_cpu else 0)
        try:
            while not is_halted() and self._take_requests():
                if self._can_prefill():
                    first = self._prefill()
                    logits = torch.cat([logits, first]) if len(first) < len(self.rows) else first
                tokens, logprobs = _sample_rows(logits, self.rows)
                count(len(tokens))
                tokens = self._append(tokens, logprobs, outbox)
                if outbox.is_due(len(self.rows)):
                    outbox.flush()
                if self.rows:
                    logits = self.kv_cache.step(tokens)
        finally:
            self.inbox.extendleft(reversed([*self.rows, *self.waiting]))
            outbox.flush()

    def _take_requests(self) -> bool:
        """Empty the inbox. Returns whether any row runs or waits."""
        while self.inbox:
            row = self.inbox.popleft()
            if not row.cancelled:
                self.waiting.append(row)
                self.longest_prompt = max(self.longest_prompt, len(row.prompt))
                self.longest_completion = max(self.longest_completion, row.tokens_left)
        self.waiting = [row for row in self.waiting if not row.cancelled]
        return bool(self.rows or self.waiting)

    def _can_prefill(self) -> bool:
        is_free = len(self.rows) <= REFILL_BELOW * self.capacity and len(self.rows) < self.capacity
        return bool(self.waiting) and is_free and self.kv_cache.accepts_rows

    def _prefill(self) -> Tensor:
        """[R, V] logits of the first tokens of the rows that start: as many as one forward pass
        takes, where others may join them later.
        """
        free = self.capacity - len(self.rows)
        prompts = (row.prompt for row in self.waiting)
        free = min(free, rows_of_one_pass(prompts, self.kv_cache.prefill_tokens))
        starting, self.waiting = self.waiting[:free], self.waiting[free:]
        self.rows += starting
        started, rollouts = (
            [row.prompt for row in starting],
            [row.request.rollout for row in starting],
        )
        return self.kv_cache.add(started, self.longest_prompt, self.longest_completion, rollouts)

    def _append(self, tokens: Tensor, logprobs: Tensor, outbox: Outbox) -> Tensor:
        """Append the sampled tokens [R]; rows that end go to the `outbox` and are dropped.
        Returns the last tokens of the remaining rows.
        """
        finished = {}
        for number, (row, token, logprob) in enumerate(
            zip(self.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            row.append(token, logprob, self.version)
            if completion := self.stop_checker.completion(row):
                outbox.add(row, completion)
            if completion or row.cancelled:
                finished[number] = row.prompt if row.request.more_turns else ()
        if not finished:
            return tokens
        order = self.kv_cache.drop(finished, self.waiting[0].prompt if self.waiting else None)
        self.rows = [self.rows[old] for old in order]
        return tokens[torch.tensor(order, dtype=torch.int64, device=tokens.device)]


def _sample_rows(logits: Tensor, rows: list[DecodeRow]) -> tuple[Tensor, Tensor]:
    """[R] the next token of each row, and its log-probability."""
    device = logits.device
    seeds, positions = zip(*((row.request.seed, len(row.tokens)) for row in rows), strict=True)
    chances = uniforms(torch.tensor(seeds, device=device), torch.tensor(positions, device=device))
    by_sampling: dict[Sampling, list[int]] = {}
    for number, row in enumerate(rows):
        by_sampling.setdefault(row.sampling, []).append(number)
    if len(by_sampling) == 1:
        return sample(logits, rows[0].sampling, chances)
    tokens = torch.empty(len(rows), dtype=torch.int64, device=device)
    logprobs = torch.empty(len(rows), device=device)
    for sampling, numbers in by_sampling.items():
        index = torch.tensor(numbers, device=device)
        tokens[index], logprobs[index] = sample(logits[index], sampling, chances[index])
    return tokens, logprobs
