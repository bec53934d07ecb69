"""Generates with one or more vLLM servers, and syncs weights to them.

On a weight update, running requests stop, and continue on the new weights after a new prefill.
vLLM can also freeze requests and continue them (`/pause?mode=keep`). With full weights that is as
exact and as fast in 0.32.0, but a frozen request asks for the old adapter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.completions import PendingCompletion, StopChecker
from assay.engines.vllm.client import Chunk, Client, GoneError
from assay.engines.vllm.fleet import Fleet, Server, Weights
from assay.engines.vllm.server import (
    MAX_NUM_SEQS,
    ServerProcess,
    dtype_of,
    server_of,
)
from assay.engines.vllm.transports import Transport
from assay.engines.vllm.transports.adapter import Adapter
from assay.engines.vllm.transports.files import CURRENT, Files
from assay.engines.vllm.weight_probe import make_probe
from assay.errors import SettingsError
from assay.sync import in_own_thread
from assay.types import Completion, Metrics

if TYPE_CHECKING:
    from assay.policy.load_model import Policy


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
        self.max_concurrent = self.tokens_generated = 0
        self.metrics: Metrics = {}
        """Of the last load: the servers that have its weights, the probe's largest difference,
        seconds to pack weights, and restarts of servers since the first load."""
        self._policy = policy
        self._settings = settings
        self._transport = transport
        self._folder = folder
        self._name = token_hex(6)
        self._fleet = Fleet(transport, seed)
        self._stop_checker = StopChecker(policy.chat)

    def add(self, client: Client, process: ServerProcess | None = None) -> None:
        """Use one more server, from the next load on."""
        self._fleet.servers.append(Server(client, process))
        self.max_concurrent += MAX_NUM_SEQS

    async def load(self, policy: Policy, version: int) -> None:
        """Sync the weights of `policy` to all servers. They are packed before any request is
        interrupted. Raises as `Fleet.load`.
        """
        old = self._fleet.weights
        if old and (self._policy, old.version) == (policy, version):
            return
        start = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix=f"weights-{version}-", dir=self._folder))
        await in_own_thread(self._transport.pack, policy, folder)
        probe = await in_own_thread(make_probe, policy)
        packed = time.perf_counter()
        self._policy, dtype = policy, dtype_of(policy, self._settings)
        weights = Weights(version, f"{self._name}:{version}", folder, probe, dtype)
        (self._folder / CURRENT).unlink(missing_ok=True)
        (self._folder / CURRENT).symlink_to(folder)
        await self._fleet.load(weights)
        used = {folder, *(server.syncing for server in self._fleet.servers)}
        for unused in set(self._folder.glob("weights-*")) - used:
            shutil.rmtree(unused, ignore_errors=True)
        synced = [server for server in self._fleet.servers if server.is_usable]
        self.metrics = {
            "engine/servers": float(len(synced)),
            "engine/probe_difference": max((server.difference for server in synced), default=0.0),
            "engine/restarts": float(self._fleet.restarts),
            "time/pack": packed - start,
        }

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """Generate one completion. Raises MachineError if servers keep dying, SettingsError if they
        refuse the request.
        """
        row = PendingCompletion(request, sampling)
        try:
            return await self._complete(row)
        except BaseException:
            if request.lose:  # what a server has sampled since its last answer is not known
                request.lose(len(row.tokens))
            raise

    async def _complete(self, row: PendingCompletion) -> Completion:
        """Generate a completion, on one server after another where servers die."""
        request, completion = row.request, None
        stop_tokens = sorted(self._stop_checker.chat.stop_tokens)
        while not completion:
            server = self._fleet.least_loaded(request.prompt)
            with server.assign(request.prompt):
                await server.ready.wait()
                async with server.slots:
                    if server.failure and all(other.failure for other in self._fleet.servers):
                        raise server.failure
                    if not server.is_usable:
                        continue
                    left = replace(row.sampling, max_tokens=row.tokens_left)
                    server.generating += 1
                    try:
                        chunk = await server.client.generate(
                            server.model, row.prompt, left, stop_tokens, request.stop
                        )
                        versions = list(map(self._version, chunk.weights))
                        completion = extended(row, chunk, versions, self._stop_checker)
                        self.tokens_generated += len(chunk.tokens)
                    except GoneError as error:
                        self._fleet.recover(server, error)
                    else:
                        if chunk.tokens:
                            server.deaths = 0
                    finally:
                        server.generating -= 1
        return completion

    async def close(self) -> None:
        """Abandon all requests and stop the servers that were started."""
        await self._fleet.close()

    def _version(self, name: str) -> int:
        """Raises GoneError for weights that are not this engine's: someone restarted the server."""
        engine, _, version = name.rpartition(":")
        if engine != self._name:
            raise GoneError(f"it generates with weights called {name!r}")
        return int(version)


def extended(
    row: PendingCompletion, chunk: Chunk, versions: Sequence[int], stop_checker: StopChecker
) -> Completion | None:
    """Append a chunk whose tokens were sampled by the weights `versions`; the completion if that
    ends it. A server looks for stop strings in its own chunk only.
    """
    for sampled in zip(chunk.tokens, chunk.logprobs, versions, strict=True):
        row.append(*sampled)
        if completion := stop_checker.completion(row):
            return completion
    if chunk.ended not in ("stop", "length"):
        return None
    how: Literal["stop", "length"] = "length" if chunk.ended == "length" else "stop"
    return row.ended(how, stop_checker.chat.text(row.tokens))


@contextlib.asynccontextmanager
async def open_vllm(
    policy: Policy, settings: EngineSettings, logs: Path, seed: int
) -> AsyncIterator[VllmEngine]:
    """An engine for `policy`. Its servers start at the first load and log to the folder `logs`.

    Raises SettingsError for what vLLM cannot serve; a load raises MachineError if no server comes
    up.
    """
    transport = Adapter() if hasattr(policy.model, "peft_config") else Files()
    shared = settings.weights_folder or (
        "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    )
    if not Path(shared).is_dir():
        raise SettingsError(
            f"engine.weights_folder = {shared!r} is not a folder: create it, or omit the setting"
        )
    longest = 107 - len("/assay-12345678") - len(f"/{uuid4()}")  # of a Unix socket's path
    if not settings.servers and len(os.fsencode(Path(shared).resolve())) > longest:
        raise SettingsError(
            f"engine.weights_folder = {shared!r}: the servers' sockets below it need a folder of at"
            f" most {longest} bytes"
        )
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir=Path(shared).resolve()))
    engine = VllmEngine(policy, settings, transport, folder, seed)
    try:
        for url in settings.servers:
            engine.add(Client(url, max_concurrent=MAX_NUM_SEQS))
        if not settings.servers:
            server = server_of(
                policy, settings, transport.arguments(policy, folder), folder, logs / "vllm.log"
            )
            each = settings.tensor_parallel
            for number in range(settings.data_parallel):
                gpus = settings.gpus[number * each : (number + 1) * each]
                process = server.numbered(number, gpus)
                engine.add(Client("http://vllm", str(process.socket), MAX_NUM_SEQS), process)
        yield engine
    finally:
        try:
            await engine.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
