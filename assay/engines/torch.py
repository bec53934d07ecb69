"""Writes with the policy's own weights, in process: a prompt is read once for its group, finished rows leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from assay.config.sections import EngineSettings
from assay.engines.base import Request, Sampling, Written
from assay.errors import MachineError
from assay.policy.load import Policy
from assay.types import Completion

MOST_ROWS = 512
"""Completions written at once, however short; more wait for the next round."""
COMPACT_BELOW = 0.8
"""Share of live rows under which the finished ones are dropped from the cache."""
STOP_WINDOW = 24
"""Tokens at the end of a row in which a stop string is looked for."""


class TorchEngine:
    """The policy itself as engine: there are no weights to send."""

    def __init__(self, policy: Policy, settings: EngineSettings | None = None) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.version = 0

    async def load(self, policy: Policy, version: int) -> None:
        """Write with `policy` from now on."""
        self.policy = policy
        self.version = version

    async def generate(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> AsyncIterator[Written]:
        """All completions, in the order they end; decoding runs in a thread so that judging goes on beside it.

        Raises MachineError when the device's memory runs out.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Written | None] = asyncio.Queue()
        stopped = threading.Event()

        def work() -> None:
            try:
                for written in self._decode(requests, sampling, seed):
                    loop.call_soon_threadsafe(queue.put_nowait, written)
                    if stopped.is_set():
                        return
            finally:
                loop.call_soon_threadsafe(queue.put_nowait, None)

        decoding = asyncio.create_task(asyncio.to_thread(work))
        try:
            while (written := await queue.get()) is not None:
                yield written
            await decoding
        finally:
            stopped.set()
            await asyncio.wait([decoding])

    def _decode(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> Iterator[Written]:
        generator = torch.Generator(device=self.policy.device).manual_seed(seed)
        self.policy.model.eval()
        wanted = [_Row(index, member) for index, request in enumerate(requests) for member in range(request.count)]
        longest = max((len(request.prompt) for request in requests), default=0) + sampling.max_tokens
        rows = min(MOST_ROWS, max(1, self.settings.tokens // longest))
        try:
            for start in range(0, len(wanted), rows):
                together = wanted[start : start + rows]
                yield from _Round(self.policy, self.version, requests, sampling, generator, together).run()
        except torch.OutOfMemoryError as error:
            raise MachineError(
                f"{self.policy.device} has no room for {rows} completions of up to {longest} tokens at once: "
                f"lower engine.tokens (now {self.settings.tokens})"
            ) from error


@dataclass(slots=True)
class _Row:
    """One completion in the making."""

    request: int
    member: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """Completions that are written together. `live` says which rows of the cache are still going."""

    policy: Policy
    version: int
    requests: Sequence[Request]
    sampling: Sampling
    generator: torch.Generator
    rows: list[_Row]

    @torch.inference_mode()
    def run(self) -> Iterator[Written]:
        """Decode until every row has ended."""
        logits, cache, attention = self._read_prompts()
        live = [True] * len(self.rows)
        while True:
            tokens, logprobs = self._sample(logits)
            for number, (token, logprob) in enumerate(zip(tokens.tolist(), logprobs.tolist(), strict=True)):
                if live[number]:
                    self.rows[number].tokens.append(token)
                    self.rows[number].logprobs.append(logprob)
            for number, row in enumerate(self.rows):
                if live[number] and (completion := self._completion(row)):
                    live[number] = False
                    yield Written(row.request, row.member, completion)
            if not any(live):
                return
            if sum(live) < COMPACT_BELOW * len(live):
                keep = torch.tensor([n for n, alive in enumerate(live) if alive], device=tokens.device)
                cache.batch_select_indices(keep)
                attention, tokens = attention[keep], tokens[keep]
                self.rows = [row for row, alive in zip(self.rows, live, strict=True) if alive]
                live = [True] * len(self.rows)
            positions = attention.sum(-1, keepdim=True)
            attention = torch.cat([attention, torch.ones_like(attention[:, :1])], dim=-1)
            logits = self._forward(tokens.unsqueeze(-1), attention, positions, cache)

    def _read_prompts(self) -> tuple[Tensor, Any, Tensor]:
        from transformers import DynamicCache

        asked = list(dict.fromkeys(row.request for row in self.rows))
        width = max(len(self.requests[number].prompt) for number in asked)
        device = self.policy.device
        tokens = torch.full((len(asked), width), self.policy.pad_token, device=device)
        attention = torch.zeros((len(asked), width), dtype=torch.int64, device=device)
        for place, number in enumerate(asked):
            prompt = self.requests[number].prompt
            tokens[place, width - len(prompt) :] = torch.tensor(prompt, device=device)
            attention[place, width - len(prompt) :] = 1
        cache = DynamicCache(config=self.policy.model.config)
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        logits = self._forward(tokens, attention, positions, cache)
        places = {number: place for place, number in enumerate(asked)}
        spread = torch.tensor([places[row.request] for row in self.rows], device=device)
        cache.batch_select_indices(spread)
        return logits[spread], cache, attention[spread]

    def _forward(self, tokens: Tensor, attention: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """[R, V] logits of the next token, in fp32."""
        out = self.policy.model(
            input_ids=tokens,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1].float()  # type: ignore[no-any-return]

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """[R] tokens and their log-probabilities under the sampling distribution."""
        if self.sampling.temperature == 0:
            tokens = logits.argmax(-1)
            return tokens, torch.log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        logprobs = torch.log_softmax(logits / self.sampling.temperature, dim=-1)
        if self.sampling.top_p < 1:
            logprobs = torch.log_softmax(_nucleus(logprobs, self.sampling.top_p), dim=-1)
        noise = torch.empty_like(logprobs).exponential_(generator=self.generator)
        tokens = (logprobs.exp() / noise).argmax(-1)
        return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def _completion(self, row: _Row) -> Completion | None:
        """What the row has come to; None while it goes on."""
        chat, stop = self.policy.chat, self.requests[row.request].stop
        own = row.tokens[-1] in chat.stop_tokens
        cut = not own and any(word in chat.text(row.tokens[-STOP_WINDOW:]) for word in stop)
        if not own and not cut and len(row.tokens) < self.sampling.max_tokens:
            return None
        text = chat.text(row.tokens)
        if cut:
            text = text[: min((place for word in stop if (place := text.find(word)) >= 0), default=len(text))]
        ended: Literal["stop", "length"] = "stop" if own or cut else "length"
        return Completion(text, tuple(row.tokens), tuple(row.logprobs), ended, self.version)


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """Log-probabilities [R, V] with all but the smallest set of total probability `top_p` at -inf."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    outside = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return logprobs.masked_fill(outside, float("-inf"))
