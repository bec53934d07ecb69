"""Completions by one or more vLLM servers that get new weights while they write.

What is being written when weights come is finished with the old ones first; or interrupted, and
asked for again with the tokens so far behind the prompt. vLLM can also freeze it and go on
(`/pause?mode=keep`): as exact and as fast with full weights in 0.32.0, but a request that is kept
asks for the old adapter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from assay.config.sections import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm.client import Client, LostError
from assay.engines.vllm.partial_completion import PartialCompletion
from assay.engines.vllm.server import MAX_NUM_SEQS, START_SECONDS, Process, dtype_of, plan
from assay.engines.vllm.transports import CURRENT, Transport
from assay.engines.vllm.transports.adapter import Adapter
from assay.engines.vllm.transports.files import Files
from assay.engines.vllm.transports.nccl import Nccl
from assay.engines.vllm.weight_probe import Probe, make_probe
from assay.errors import AssayError, MachineError, SettingsError
from assay.maths.seeds import derive
from assay.types import Completion, Metrics

if TYPE_CHECKING:
    from assay.policy.load import Policy

DEATHS = 3
"""A server that dies so often without having written anything in between is given up."""
STICKY = 64
"""Completions that a server may have more than another, for the sake of a prompt that it has
read."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Weights:
    """What the servers are to write with."""

    version: int
    name: str
    """Stands in every answer, so that a server which lost them is found out."""
    folder: Path
    probe: Probe
    dtype: str


@dataclass(slots=True, eq=False)
class Server:
    """One server, and how it fares."""

    client: Client
    process: Process | None
    """None for one that was running already."""
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_NUM_SEQS))
    writing: int = 0
    """Completions that it works on, none while it gets weights."""
    busy: int = 0
    """Completions that it was chosen for."""
    prompts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Their prompts."""
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it writes with the current weights, or never will again: then there is a
    `failure`."""
    model: str | None = None
    """What it calls them."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lost: bool = False
    why: str = ""
    deaths: int = 0
    """Since it last wrote something."""
    failure: Exception | None = None
    probed: tuple[Probe, Sequence[float]] | None = None
    """The last probe, and what it made of it."""
    rising: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def chosen_for(self, prompt: tuple[int, ...]) -> Iterator[None]:
        """Count a completion."""
        self.busy += 1
        self.prompts[prompt] += 1
        try:
            yield
        finally:
            self.busy -= 1
            self.prompts[prompt] -= 1
            if not self.prompts[prompt]:
                del self.prompts[prompt]


class VllmEngine:
    """Writes through servers. Made by `open_vllm`, which also ends what it starts.

    Draws have no seeds: they depend on what else a server writes at that moment.
    """

    def __init__(
        self,
        policy: Policy,
        settings: EngineSettings,
        transport: Transport,
        folder: Path,
        seed: int,
    ) -> None:
        self.max_concurrent = 0
        self.metrics: Metrics = {}
        """Of the last load: what the probe found, and seconds; how often servers were started again
        since the first."""
        self._policy = policy
        self._settings = settings
        usual = "finish" if policy.device.type == "cpu" else "interrupt"
        self._finishes = (
            usual if settings.on_weight_update == "auto" else settings.on_weight_update
        ) == "finish"
        self._transport = transport
        self._folder = folder
        self._seed = seed
        self._name = token_hex(6)
        self._servers: list[Server] = []
        self._weights: Weights | None = None
        self._restarts = 0

    def add(self, client: Client, process: Process | None = None) -> None:
        """Write through one more server, from the next load on."""
        self._servers.append(Server(client, process))
        self.max_concurrent += MAX_NUM_SEQS

    async def load(self, policy: Policy, version: int) -> None:
        """Write with the weights of `policy` from now on; they are packed before anything is
        interrupted.

        Raises MachineError when a server does not come to write with them.
        """
        if self._weights and (self._policy, self._weights.version) == (policy, version):
            return
        start = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix=f"weights-{version}-", dir=self._folder))
        await asyncio.to_thread(self._transport.pack, policy, folder)
        probe = await asyncio.to_thread(make_probe, policy)
        packed = time.perf_counter()
        old, dtype = self._weights, dtype_of(policy, self._settings)
        self._policy, self._weights = (
            policy,
            Weights(version, f"{self._name}:{version}", folder, probe, dtype),
        )
        (self._folder / CURRENT).unlink(missing_ok=True)
        (self._folder / CURRENT).symlink_to(folder)
        for server in self._servers:
            server.up.clear()
        differences = await asyncio.gather(*map(self._bring_up, self._servers))
        if old:
            shutil.rmtree(old.folder, ignore_errors=True)
        self.metrics = {
            "engine/probe_difference": max(differences),
            "engine/restarts": float(self._restarts),
            "time/pack": packed - start,
        }

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """One completion. Raises MachineError when servers keep dying, SettingsError when they
        refuse the request.
        """
        chat = self._policy.chat
        so_far = PartialCompletion(request, sampling.max_tokens, chat)
        while not (completion := so_far.completion()):
            server = min(self._servers, key=partial(_reluctance, request.prompt))
            with server.chosen_for(request.prompt):
                await server.up.wait()
                async with server.places:
                    if server.failure:
                        raise server.failure
                    if not server.up.is_set():
                        continue
                    left = replace(sampling, max_tokens=sampling.max_tokens - len(so_far.tokens))
                    prompt = (*request.prompt, *so_far.tokens)
                    server.writing += 1
                    try:
                        chunk = await server.client.generate(
                            server.model, prompt, left, sorted(chat.stop_tokens), request.stop
                        )
                        so_far.add(chunk, list(map(self._version, chunk.weights)))
                    except LostError as error:
                        self._lost(server, error)
                    else:
                        if chunk.tokens:
                            server.deaths = 0
                    finally:
                        server.writing -= 1
        return completion

    async def close(self) -> None:
        """Give everything up, and end what was started."""
        for server in self._servers:
            if server.rising:
                server.rising.cancel()
                await asyncio.wait([server.rising])
            await server.client.close()
            if server.process:
                await asyncio.to_thread(server.process.stop)

    def _version(self, name: str) -> int:
        """Raises LostError for weights that this engine has not given: the server was started anew
        by others.
        """
        whose, _, version = name.rpartition(":")
        if whose != self._name:
            raise LostError(f"it writes with weights called {name!r}")
        return int(version)

    def _lost(self, server: Server, error: LostError) -> None:
        """Have it brought up again; the first to notice does."""
        if server.up.is_set() and not server.failure:
            _note(server, error)
            server.rising = asyncio.create_task(self._rise(server))

    async def _rise(self, server: Server) -> None:
        with contextlib.suppress(AssayError):  # whoever waits for the server raises its failure
            await self._bring_up(server)

    async def _bring_up(self, server: Server) -> float:
        """Return when it writes with the current weights: the largest difference that the probe has
        found.
        """
        async with server.lock:
            server.up.clear()
            try:
                while True:
                    try:
                        if server.lost or not await server.client.is_healthy():
                            await self._start(server)
                        weights = self._weights
                        assert weights
                        difference = await self._give(server, weights)
                    except LostError as error:
                        _note(server, error)
                    else:
                        if weights is self._weights:
                            server.up.set()
                            return difference
            except Exception as error:  # or those who wait would wait for ever
                server.failure = error
                server.up.set()
                raise

    async def _start(self, server: Server) -> None:
        """Start it (again), or wait until others have. Raises MachineError when that leads
        nowhere.
        """
        if server.deaths >= (DEATHS if server.probed else 1):
            words = (
                f"; {server.process.last_words()}" if server.process else f" at {server.client.url}"
            )
            raise MachineError(
                f"a vLLM server is lost, {server.deaths} in a row: {server.why}{words}"
            )
        if server.process:
            await asyncio.to_thread(server.process.stop)
            number = self._servers.index(server)
            await server.process.start(
                server.client, derive(self._seed, "vllm", number, self._restarts)
            )
            self._restarts += bool(server.probed)
        else:
            deadline = time.monotonic() + START_SECONDS
            while not await server.client.is_healthy():
                if time.monotonic() > deadline:
                    raise MachineError(f"no vLLM server answers at {server.client.url}")
                await asyncio.sleep(1)
        server.lost = False

    async def _give(self, server: Server, weights: Weights) -> float:
        """Interrupt what it writes, or let it finish; give it `weights`, and prove that it has
        them.
        """
        client, probe = server.client, weights.probe
        while server.writing and self._finishes:
            await asyncio.sleep(0.01)
        await client.call("/pause?mode=abort")
        while server.writing:  # they were on their way to it when it paused, and wait in there
            await asyncio.sleep(0.01)
            await client.call("/pause?mode=abort")
        server.model = await self._transport.give(client, weights.folder)
        if not (await client.call("/reset_prefix_cache"))["success"]:
            raise LostError("its cache of the old weights' keys and values cannot be emptied")
        await client.call("/update_weight_version", {"new_version": weights.name})
        await client.call("/resume")
        scores = (
            client.score(server.model, probe.tokens[:length], probe.tokens[length])
            for length in probe.prefixes
        )
        found = await asyncio.gather(*scores)
        difference = probe.check(found, server.probed, weights.dtype)
        server.probed = probe, found
        return difference


@contextlib.asynccontextmanager
async def open_vllm(
    policy: Policy, settings: EngineSettings, logs: Path, seed: int
) -> AsyncIterator[VllmEngine]:
    """An engine for `policy`. Its server starts at the first load, with its log in the folder
    `logs`.

    Raises SettingsError for what vLLM cannot serve; a load raises MachineError when no server comes
    up.
    """
    full: Transport = Nccl() if settings.weight_transfer == "nccl" else Files()
    transport = Adapter() if hasattr(policy.model, "peft_config") else full
    shared = settings.weights_folder or (
        "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    )
    if not Path(shared).is_dir():
        raise SettingsError(
            f"engine.weights_folder = {shared!r} is no folder; make it, or leave the setting out"
        )
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir=Path(shared).resolve()))
    engine = VllmEngine(policy, settings, transport, folder, seed)
    try:
        for url in settings.servers:
            engine.add(Client(url, max_concurrent=MAX_NUM_SEQS))
        if not settings.servers:
            launch = plan(
                policy, settings, transport.arguments(policy, folder), folder, logs / "vllm.log"
            )
            process = Process(launch, 0)
            engine.add(Client("http://vllm", str(process.socket), MAX_NUM_SEQS), process)
        yield engine
    finally:
        try:
            await engine.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _reluctance(prompt: tuple[int, ...], server: Server) -> tuple[bool, int]:
    """Servers that write come first, then those with the least to do; one that has read the prompt
    may have more.
    """
    return not server.up.is_set(), server.busy - (STICKY if prompt in server.prompts else 0)


def _note(server: Server, error: LostError) -> None:
    log.warning("a vLLM server is lost: %s", error)
    server.up.clear()
    server.lost, server.why = True, str(error)
    server.deaths += 1
