"""Generates with one or more vLLM servers, and syncs weights to them.

On a weight update, running requests either continue on the new weights (after a new prefill) or
finish on the old ones. vLLM can also freeze requests and continue them (`/pause?mode=keep`). With
full weights that is as exact and as fast in 0.32.0, but a frozen request asks for the old adapter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm.client import Client, LostError
from assay.engines.vllm.partial_completion import PartialCompletion
from assay.engines.vllm.server import (
    MAX_NUM_SEQS,
    START_SECONDS,
    ServerProcess,
    dtype_of,
    launch_plan,
)
from assay.engines.vllm.server_state import Server, Weights, load_of, note_death
from assay.engines.vllm.transports import CURRENT, Transport
from assay.engines.vllm.transports.adapter import Adapter
from assay.engines.vllm.transports.files import Files
from assay.engines.vllm.transports.nccl import Nccl
from assay.engines.vllm.weight_probe import make_probe
from assay.errors import MachineError, SettingsError
from assay.maths.seeds import derive
from assay.sync import together
from assay.types import Completion, Metrics

if TYPE_CHECKING:
    from assay.policy.load import Policy

MAX_DEATHS = 3
"""A server that dies this often without generating anything in between is given up."""
GRACE = 60.0
"""Seconds that a load waits for more servers when one has the weights."""
log = logging.getLogger(__name__)


class VllmEngine:
    """Generates with servers. Made by `open_vllm`, which also stops what it started.

    Sampling is not seeded: tokens depend on what else a server generates at that moment.
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
        """Of the last load: the servers that have its weights, the probe's largest difference,
        seconds to pack weights, and restarts of servers since the first load."""
        self._policy = policy
        self._settings = settings
        default = "finish" if policy.device.type == "cpu" else "interrupt"
        on_update = settings.on_weight_update
        self._finishes = (default if on_update == "auto" else on_update) == "finish"
        self._transport = transport
        self._folder = folder
        self._seed = seed
        self._name = token_hex(6)
        self._servers: list[Server] = []
        self._weights: Weights | None = None
        self._restarts = 0

    def add(self, client: Client, process: ServerProcess | None = None) -> None:
        """Use one more server, from the next load on."""
        self._servers.append(Server(client, process))
        self.max_concurrent += MAX_NUM_SEQS

    async def load(self, policy: Policy, version: int) -> None:
        """Sync the weights of `policy` to all servers. They are packed before any request is
        interrupted. The first load needs every server. A later one goes on without those that were
        given up, and without running servers (`engine.servers`) that are gone for GRACE seconds:
        these join when they are back.

        Raises MachineError if no server can be brought to generate with them.
        """
        if self._weights and (self._policy, self._weights.version) == (policy, version):
            return
        start = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix=f"weights-{version}-", dir=self._folder))
        await asyncio.to_thread(self._transport.pack, policy, folder)
        probe = await asyncio.to_thread(make_probe, policy)
        packed = time.perf_counter()
        old, dtype = self._weights, dtype_of(policy, self._settings)
        self._policy = policy
        self._weights = Weights(version, f"{self._name}:{version}", folder, probe, dtype)
        (self._folder / CURRENT).unlink(missing_ok=True)
        (self._folder / CURRENT).symlink_to(folder)
        for server in self._servers:
            server.ready.clear()
        if old:
            await self._bring_up_again()
        else:
            await together(map(self._bring_up, self._servers))
        used = {folder, *(server.syncing for server in self._servers)}
        for unused in set(self._folder.glob("weights-*")) - used:
            shutil.rmtree(unused, ignore_errors=True)
        synced = [server for server in self._servers if server.is_usable]
        self.metrics = {
            "engine/servers": float(len(synced)),
            "engine/probe_difference": max(server.difference for server in synced),
            "engine/restarts": float(self._restarts),
            "time/pack": packed - start,
        }

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion. Raises MachineError if servers keep dying, SettingsError if they
        refuse the request.
        """
        chat = self._policy.chat
        so_far = PartialCompletion(request, sampling.max_tokens, chat)
        while not (completion := so_far.completion()):
            server = min(self._servers, key=partial(load_of, request.prompt))
            with server.assign(request.prompt):
                await server.ready.wait()
                async with server.slots:
                    if server.failure and all(one.failure for one in self._servers):
                        raise server.failure
                    if not server.is_usable:
                        continue
                    left = replace(sampling, max_tokens=sampling.max_tokens - len(so_far.tokens))
                    prompt = (*request.prompt, *so_far.tokens)
                    server.generating += 1
                    try:
                        chunk = await server.client.generate(
                            server.model, prompt, left, sorted(chat.stop_tokens), request.stop
                        )
                        so_far.add(chunk, list(map(self._version, chunk.weights)))
                    except LostError as error:
                        self._recover(server, error)
                    else:
                        if chunk.tokens:
                            server.deaths = 0
                    finally:
                        server.generating -= 1
        return completion

    async def close(self) -> None:
        """Abandon all requests and stop the servers that were started."""
        for server in self._servers:
            if server.recovery:
                server.recovery.cancel()
                await asyncio.wait([server.recovery])
            await server.client.close()
            if server.process:
                await asyncio.to_thread(server.process.stop)

    def _version(self, name: str) -> int:
        """Raises LostError for weights that are not this engine's: someone restarted the server."""
        engine, _, version = name.rpartition(":")
        if engine != self._name:
            raise LostError(f"it generates with weights called {name!r}")
        return int(version)

    async def _bring_up_again(self) -> None:
        """Sync the servers. Raises a failure if all have failed."""
        absent = {one.recovery for one in self._servers if one.is_recovering}
        tasks = {self._recovery(server) for server in self._servers}
        while tasks and not any(server.is_usable for server in self._servers):
            _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._settings.servers:
            tasks -= absent
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE if self._settings.servers else None)
        failures = [server.failure for server in self._servers if server.failure]
        for failure in failures:
            if len(failures) == len(self._servers) or not isinstance(failure, MachineError):
                raise failure

    def _recovery(self, server: Server) -> asyncio.Task[None]:
        """The task that brings the server up, begun now unless it runs."""
        if not server.recovery or server.recovery.done():
            server.recovery = asyncio.create_task(self._bring_up_quietly(server))
        return server.recovery

    def _recover(self, server: Server, error: LostError) -> None:
        """Start bringing the server up again, unless another request has done so."""
        if server.is_usable:
            note_death(server, error)
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
                        weights = self._weights
                        assert weights
                        server.syncing = weights.folder
                        server.difference = await self._sync(server, weights)
                    except LostError as error:
                        note_death(server, error)
                    else:
                        if weights is self._weights:
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

    async def _sync(self, server: Server, weights: Weights) -> float:
        """Interrupt the running requests or let them finish, sync `weights`, and probe them."""
        client, probe = server.client, weights.probe
        while server.generating and self._finishes:
            await asyncio.sleep(0.01)
        await client.call("/pause?mode=abort")
        while server.generating:  # requests that arrived after the pause wait in the server
            await asyncio.sleep(0.01)
            await client.call("/pause?mode=abort")
        server.model = await self._transport.send(client, weights.folder)
        if not (await client.call("/reset_prefix_cache"))["success"]:
            raise LostError("its prefix cache of the old weights cannot be reset")
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


@contextlib.asynccontextmanager
async def open_vllm(
    policy: Policy, settings: EngineSettings, logs: Path, seed: int
) -> AsyncIterator[VllmEngine]:
    """An engine for `policy`. Its servers start at the first load and log to the folder `logs`.

    Raises SettingsError for what vLLM cannot serve; a load raises MachineError if no server comes
    up.
    """
    full: Transport = Nccl() if settings.weight_transfer == "nccl" else Files()
    transport = Adapter() if hasattr(policy.model, "peft_config") else full
    shared = settings.weights_folder or (
        "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    )
    if not Path(shared).is_dir():
        raise SettingsError(
            f"engine.weights_folder = {shared!r} is not a folder: create it, or omit the setting"
        )
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir=Path(shared).resolve()))
    engine = VllmEngine(policy, settings, transport, folder, seed)
    try:
        for url in settings.servers:
            engine.add(Client(url, max_concurrent=MAX_NUM_SEQS))
        if not settings.servers:
            launch = launch_plan(
                policy, settings, transport.arguments(policy, folder), folder, logs / "vllm.log"
            )
            each = settings.tensor_parallel
            for number in range(settings.data_parallel):
                gpus = settings.gpus[number * each : (number + 1) * each]
                process = ServerProcess(launch.numbered(number, gpus), number)
                engine.add(Client("http://vllm", str(process.socket), MAX_NUM_SEQS), process)
        yield engine
    finally:
        try:
            await engine.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
