"""The vLLM servers of an engine: which one gets a request, and how each gets new weights, and is
brought up again after it died.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assay.engines.vllm.client import Client, GoneError
from assay.engines.vllm.server import MAX_NUM_SEQS, START_SECONDS, ServerProcess
from assay.engines.vllm.transports import Transport
from assay.engines.vllm.weight_probe import Probed, WeightProbe
from assay.errors import MachineError
from assay.maths.seeds import derive
from assay.sync import together

PREFIX_BONUS = 64
"""How many more completions than another a server may get if it has the prompt in its prefix
cache."""
MAX_DEATHS = 3
"""A server that dies this often without generating anything in between is given up."""
GRACE = 60.0
"""Seconds that a load waits for more servers when one has the weights."""
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


class Fleet:
    """The servers of an engine. It brings them up, to the newest weights.

    transport: sends weights. seed: of the servers that it starts.
    """

    def __init__(self, transport: Transport, seed: int) -> None:
        self.servers: list[Server] = []
        self.weights: Weights | None = None
        self.restarts = 0
        self._transport = transport
        self._seed = seed

    async def load(self, weights: Weights) -> None:
        """Sync `weights` to the servers. The first time every server is needed. Later it goes on
        without those that were given up, and without servers of others that are gone for GRACE
        seconds: these join when they are back.

        Raises MachineError if no server can be brought to generate with them.
        """
        is_first, self.weights = self.weights is None, weights
        for server in self.servers:
            server.ready.clear()
        if is_first:
            await together(map(self._bring_up, self.servers))
        else:
            await self._bring_up_again()

    def least_loaded(self, prompt: tuple[int, ...]) -> Server:
        """A ready server, if there is one, that did not fail, if there is one; with a bonus for one
        that has the prompt in its prefix cache.
        """

        def load(server: Server) -> tuple[bool, bool, int]:
            bonus = PREFIX_BONUS if prompt in server.prompts else 0
            return server.failure is not None, not server.ready.is_set(), server.assigned - bonus

        return min(self.servers, key=load)

    async def close(self) -> None:
        """Stop the servers that were started."""
        for server in self.servers:
            if server.recovery:
                server.recovery.cancel()
                await asyncio.wait([server.recovery])
            await server.client.close()
            if server.process:
                await asyncio.to_thread(server.process.stop)

    async def _bring_up_again(self) -> None:
        """Sync the servers. Raises a failure if all have failed."""
        absent = {server.recovery for server in self.servers if not server.process}
        tasks = {self._recovery(server) for server in self.servers}
        while tasks and not any(server.is_usable for server in self.servers):
            _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks := tasks - absent:
            await asyncio.wait(tasks, timeout=None if self.servers[0].process else GRACE)
        failures = [server.failure for server in self.servers if server.failure]
        for failure in failures:
            if len(failures) == len(self.servers) or not isinstance(failure, MachineError):
                raise failure

    def _recovery(self, server: Server) -> asyncio.Task[None]:
        """The task that brings the server up, begun now unless it runs."""
        if not server.recovery or server.recovery.done():
            server.recovery = asyncio.create_task(self._bring_up_quietly(server))
        return server.recovery

    def recover(self, server: Server, error: GoneError) -> None:
        """Start bringing the server up again, unless another request has done so."""
        if server.is_usable:
            _note_death(server, error)
            self._recovery(server)

    async def _bring_up_quietly(self, server: Server) -> None:
        try:
            await self._bring_up(server)
        except Exception as error:  # noqa: BLE001  raised where all servers have failed
            log.warning("a vLLM server is given up: %s", error)

    async def _bring_up(self, server: Server) -> None:
        """Return when the server generates with the current weights."""
        async with server.lock:
            server.ready.clear()
            try:
                while True:
                    try:
                        if server.lost or not await server.client.is_healthy():
                            await self._start(server)
                        weights = self.weights
                        assert weights
                        server.syncing = weights.folder
                        server.difference = await self._sync(server, weights)
                    except GoneError as error:
                        _note_death(server, error)
                    else:
                        if weights is self.weights:
                            server.failure = None
                            server.ready.set()
                            return
                    finally:
                        server.syncing = None
            except Exception as error:  # otherwise waiting requests would wait for ever
                server.failure = error
                server.ready.set()
                raise

    async def _start(self, server: Server) -> None:
        """Start the server, or wait until its owner has. Raises MachineError after too many
        deaths.
        """
        if server.deaths >= (MAX_DEATHS if server.probed else 1):
            where = f" at {server.client.url}"
            if server.process:
                where = f"; {server.process.last_log_line()}"
            raise MachineError(
                f"a vLLM server died {server.deaths} times in a row: {server.reason}{where}"
            )
        if server.process:
            await asyncio.to_thread(server.process.stop)
            number = self.servers.index(server)
            await server.process.start(
                server.client, derive(self._seed, "vllm", number, self.restarts)
            )
            self.restarts += bool(server.probed)
        else:
            deadline = time.monotonic() + START_SECONDS
            while not await server.client.is_healthy():
                if time.monotonic() > deadline:
                    raise MachineError(f"no vLLM server answers at {server.client.url}")
                await asyncio.sleep(1)
        server.lost = False

    async def _sync(self, server: Server, weights: Weights) -> float:
        """Interrupt the running requests, sync `weights`, and probe them."""
        client, probe = server.client, weights.probe
        await client.call("/pause?mode=abort")
        while server.generating:  # requests that arrived after the pause wait in the server
            await asyncio.sleep(0.01)
            await client.call("/pause?mode=abort")
        server.model = await self._transport.send(client, weights.folder)
        if not (await client.call("/reset_prefix_cache"))["success"]:
            raise GoneError("its prefix cache of the old weights cannot be reset")
        await client.call("/update_weight_version", {"new_version": weights.name})
        await client.call("/resume")
        scores = await asyncio.gather(
            *(
                client.score(server.model, probe.tokens[:length], probe.tokens[length])
                for length in probe.prefixes
            )
        )
        difference = probe.check(scores, server.probed, weights.dtype)
        server.probed = probe, scores
        return difference


def _note_death(server: Server, error: GoneError) -> None:
    log.warning("lost a vLLM server: %s", error)
    server.ready.clear()
    server.lost, server.reason = True, str(error)
    server.deaths += 1
