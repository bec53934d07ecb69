"""Writes completions token by token: rows leave the moment they end, and waiting ones take their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from assay.engines.base import Request, Sampling, Written
from assay.engines.torch.prompts import Plain
from assay.engines.torch.sampling import draw, uniforms
from assay.engines.torch.slots import Slots
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.types import Completion

FULL_ENOUGH = 0.8
"""Share of rows in use under which waiting ones are read in."""


@dataclass(slots=True)
class Row:
    """One completion in the making."""

    request: int
    member: int
    asked: Request
    stream: int
    """Names its own stream of random numbers."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def rows_of(requests: Sequence[Request], seed: int) -> list[Row]:
    """A row for every completion that is wanted, in order."""
    streams = [request.seed if request.seed is not None else f"#{at}" for at, request in enumerate(requests)]
    return [
        Row(at, member, request, derive(seed, streams[at], member))
        for at, request in enumerate(requests)
        for member in range(request.count)
    ]


class Endings:
    """Knows why a row ends, and what it says then."""

    def __init__(self, chat: Chat, max_tokens: int, version: int) -> None:
        self.chat = chat
        self.max_tokens = max_tokens
        self.version = version
        self.pieces: dict[int, str] = {}

    def completion(self, row: Row) -> Completion | None:
        """What the row has come to; None while it goes on."""
        own = row.tokens[-1] in self.chat.stop_tokens
        cut = bool(row.asked.stop) and not own and self._is_cut(row)
        if not own and not cut and len(row.tokens) < self.max_tokens:
            return None
        text = self.chat.text(row.tokens)
        if cut:
            text = text[: min((at for word in row.asked.stop if (at := text.find(word)) >= 0), default=len(text))]
        ended: Literal["stop", "length"] = "stop" if own or cut else "length"
        return Completion(text, tuple(row.tokens), tuple(row.logprobs), ended, self.version)

    def _is_cut(self, row: Row) -> bool:
        """Whether a stop string ends within the last token. Most tokens lack its last character: they cost nothing."""
        last = row.tokens[-1]
        if last not in self.pieces:
            self.pieces[last] = self.chat.text([last])
        piece = self.pieces[last]
        if piece.isascii() and piece and not any(word[-1] in piece for word in row.asked.stop):
            return False
        window = max(len(word.encode()) for word in row.asked.stop) + 4  # a token is a byte at least
        tail = self.chat.text(row.tokens[-window:])
        return any(word in tail for word in row.asked.stop)


@torch.inference_mode()
def decode(memory: Slots | Plain, waiting: list[Row], sampling: Sampling, endings: Endings) -> Iterator[Written]:
    """All completions, each the moment it ends."""
    rows: list[Row] = []
    streams, logits = torch.empty(0, dtype=torch.int64), torch.empty(0)
    upcoming = 0
    while rows or upcoming < len(waiting):
        if upcoming < len(waiting) and len(rows) <= FULL_ENOUGH * memory.capacity and memory.free:
            fresh = waiting[upcoming : upcoming + memory.free]
            upcoming += len(fresh)
            first = memory.add([row.asked.prompt for row in fresh])
            named = torch.tensor([row.stream for row in fresh], device=first.device)
            logits, streams = (torch.cat([logits, first]), torch.cat([streams, named])) if rows else (first, named)
            rows += fresh
        ages = torch.tensor([len(row.tokens) for row in rows], device=logits.device)
        tokens, logprobs = draw(logits, sampling, uniforms(streams, ages))
        gone = []
        for place, (row, token, logprob) in enumerate(zip(rows, tokens.tolist(), logprobs.tolist(), strict=True)):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            if completion := endings.completion(row):
                gone.append(place)
                yield Written(row.request, row.member, completion)
        if gone:
            awaited = waiting[upcoming].asked.prompt if upcoming < len(waiting) else None
            order = memory.drop(gone, awaited)
            rows = [rows[old] for old in order]
            kept = torch.tensor(order, dtype=torch.int64, device=tokens.device)
            tokens, streams = tokens[kept], streams[kept]
        if rows:
            logits = memory.step(tokens)
