"""What the engine knows of each of its servers, and which one gets the next request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assay.engines.vllm.client import Client, LostError
from assay.engines.vllm.server import MAX_NUM_SEQS, ServerProcess
from assay.engines.vllm.weight_probe import Probed, WeightProbe

PREFIX_BONUS = 64
"""How many more completions than another a server may get if it has the prompt in its prefix
cache."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that the servers must generate with."""

    version: int
    name: str
    """Every response carries it, so a server that lost its weights is noticed."""
    folder: Path
    probe: WeightProbe
    dtype: str


@dataclass(slots=True, eq=False)
class Server:
    """One server and its state."""

    client: Client
    process: ServerProcess | None
    """None for a server that ran already."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_NUM_SEQS))
    generating: int = 0
    """Its running requests; none while weights are synced."""
    assigned: int = 0
    """Completions assigned to it."""
    prompts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Their prompts."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it generates with the current weights, or never will again: then there is a
    `failure`."""
    model: str | None = None
    """Its name for those weights."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lost: bool = False
    reason: str = ""
    deaths: int = 0
    """Since it last generated something."""
    failure: Exception | None = None
    probed: Probed | None = None
    """The last probe, and the server's scores of it."""
    syncing: Path | None = None
    """The weights that it reads at this moment."""
    difference: float = 0.0
    """The largest of the last probe."""
    recovery: asyncio.Task[None] | None = None
    """Brings it up, to the current weights."""

    @property
    def is_usable(self) -> bool:
        """Whether it generates with the current weights."""
        return self.ready.is_set() and not self.failure

    @property
    def is_recovering(self) -> bool:
        """Whether it is being brought up."""
        return self.recovery is not None and not self.recovery.done()

    @contextlib.contextmanager
    def assign(self, prompt: tuple[int, ...]) -> Iterator[None]:
        """Count a completion while it is assigned to this server."""
        self.assigned += 1
        self.prompts[prompt] += 1
        try:
            yield
        finally:
            self.assigned -= 1
            self.prompts[prompt] -= 1
            if not self.prompts[prompt]:
                del self.prompts[prompt]


def load_of(prompt: tuple[int, ...], server: Server) -> tuple[bool, bool, int]:
    """Sorts servers: ready ones first, failed ones last, then by load, with a bonus for a cached
    prompt.
    """
    bonus = PREFIX_BONUS if prompt in server.prompts else 0
    return server.failure is not None, not server.ready.is_set(), server.assigned - bonus


def note_death(server: Server, error: LostError) -> None:
    """Count that the server was lost: it generates no more until it is brought up again."""
    log.warning("lost a vLLM server: %s", error)
    server.ready.clear()
    server.lost, server.reason = True, str(error)
    server.deaths += 1
