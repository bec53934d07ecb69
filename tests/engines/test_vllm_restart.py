"""Weight updates while a vLLM server restarts, with a stand-in server that keeps the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm import engine as engine_file
from assay.engines.vllm import fleet
from assay.engines.vllm.client import Chunk, GoneError
from assay.engines.vllm.engine import VllmEngine, open_vllm
from assay.errors import MachineError, SettingsError
from tests.policies import tiny_policy


class Served:
    """Generates token 7 every few milliseconds, until it is paused or dead."""

    url = "http://vllm"

    def __init__(self) -> None:
        self.paused = self.dead = False
        self.weights = ""
        self.running: set[asyncio.Event] = set()
        self.there = asyncio.Event()
        self.there.set()

    async def is_healthy(self) -> bool:
        await asyncio.sleep(0.002)
        return self.there.is_set()

    async def call(self, path: str, body: Any = None) -> Any:
        await asyncio.sleep(0.002)
        if path.startswith("/pause"):
            self.paused = True
            for interrupted in self.running:
                interrupted.set()
        elif path == "/resume":
            self.paused = False
        elif path == "/update_weight_version":
            self.weights = body["new_version"]
        return {"success": True}

    async def score(self, *_: object) -> float:
        return 0.0

    async def generate(
        self, model: object, prompt: object, sampling: Sampling, *_: Sequence[object]
    ) -> Chunk:
        interrupted = asyncio.Event()
        self.running.add(interrupted)
        count = 0
        try:
            while count < sampling.max_tokens and not interrupted.is_set():
                if self.dead:
                    raise GoneError("killed")
                count += not self.paused
                await asyncio.sleep(0.005)
        finally:
            self.running.discard(interrupted)
        ended = "length" if count == sampling.max_tokens else "abort"
        return Chunk([7] * count, [-1.0] * count, [self.weights] * count, ended)

    async def close(self) -> None:
        """Nothing is open."""


class Restarted:
    """Its process, which takes a while to restart."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def stop(self) -> None:
        """It is dead."""

    async def start(self, client: Served, seed: int) -> None:
        client.there.clear()
        client.dead = False
        await asyncio.sleep(0.3)
        client.paused = False
        client.there.set()


class NoWeights:
    """A transport that sends nothing."""

    def pack(self, policy: object, folder: Path) -> None:
        """No files."""

    async def send(self, client: object, folder: Path) -> None:
        await asyncio.sleep(0.002)


def served_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, VllmEngine]:
    """A server, and the engine that uses it."""
    probe = SimpleNamespace(tokens=(1, 2), prefixes=(1,), check=lambda *_: 0.0)
    monkeypatch.setattr(engine_file, "make_probe", lambda policy: probe)
    monkeypatch.setattr(engine_file, "dtype_of", lambda policy, settings: "float32")
    chat = SimpleNamespace(stop_tokens=frozenset(), text=lambda tokens: "")
    policy: Any = SimpleNamespace(chat=chat, device=torch.device("cpu"))
    served: Any = Served()
    engine = VllmEngine(policy, EngineSettings(), NoWeights(), tmp_path, 0)  # type: ignore[arg-type]
    engine.add(served, Restarted(served))  # type: ignore[arg-type]
    return served, engine


@pytest.mark.parametrize("killed", [False, True])
def test_a_weight_update_while_a_server_restarts_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    async def test() -> None:
        served, engine = served_by(tmp_path, monkeypatch)
        await engine.load(engine._policy, 0)
        running = [
            asyncio.create_task(engine.generate(GenerationRequest((1, n), n), Sampling(40)))
            for n in range(4)
        ]
        await asyncio.sleep(0.05)
        if killed:
            served.dead = True
            await asyncio.sleep(0.1)
        await asyncio.wait_for(engine.load(engine._policy, 1), 10)
        completions = await asyncio.wait_for(asyncio.gather(*running), 10)
        assert [len(completion.tokens) for completion in completions] == [40] * 4
        assert all(completion.versions[-1] == 1 for completion in completions)
        await engine.close()

    asyncio.run(test())


def test_on_a_weight_update_running_requests_continue_on_the_new_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        _, engine = served_by(tmp_path, monkeypatch)
        await engine.load(engine._policy, 0)
        first = asyncio.create_task(engine.generate(GenerationRequest((1,), 0), Sampling(40)))
        await asyncio.sleep(0.05)
        loading = asyncio.create_task(engine.load(engine._policy, 1))
        while engine._fleet.servers[0].ready.is_set():
            await asyncio.sleep(0.001)
        second = await engine.generate(GenerationRequest((2,), 1), Sampling(3))
        await loading
        assert set((await first).versions) == {0, 1}
        assert set(second.versions) == {1}, "no request starts on weights that are being replaced"
        await engine.close()

    asyncio.run(test())


def test_a_request_that_is_cancelled_tells_the_tokens_that_servers_have_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        _, engine = served_by(tmp_path, monkeypatch)
        await engine.load(engine._policy, 0)
        lost = list[int]()
        request = GenerationRequest((1,), 0, lose=lost.append)
        work = asyncio.create_task(engine.generate(request, Sampling(10_000)))
        while not engine._fleet.servers[0].client.running:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        await engine.load(engine._policy, 1)  # interrupts it, so a first part is answered
        answered = engine.tokens_generated
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert lost == [answered]
        assert answered > 0
        await engine.close()

    asyncio.run(test())


class Broken:
    """A process that does not start again."""

    def stop(self) -> None:
        """It is dead."""

    async def start(self, client: Served, seed: int) -> None:
        await asyncio.sleep(0.01)
        raise GoneError("it did not start")

    def last_log_line(self) -> str:
        return "no space left"


def test_a_server_that_is_given_up_leaves_its_work_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        served, engine = served_by(tmp_path, monkeypatch)
        broken: Any = Served()
        engine.add(broken, Broken())  # type: ignore[arg-type]
        await engine.load(engine._policy, 0)
        assert engine.metrics["engine/servers"] == 2.0
        running = [
            asyncio.create_task(engine.generate(GenerationRequest((n,), n), Sampling(40)))
            for n in range(4)
        ]
        await asyncio.sleep(0.05)
        broken.dead = True
        broken.there.clear()
        completions = await asyncio.wait_for(asyncio.gather(*running), 10)
        assert [len(completion.tokens) for completion in completions] == [40] * 4
        await asyncio.wait_for(engine.load(engine._policy, 1), 10)
        assert engine.metrics["engine/servers"] == 1.0
        completion = await engine.generate(GenerationRequest((1,), 0), Sampling(3))
        assert set(completion.versions) == {1}
        engine._fleet.servers[0].process = Broken()  # type: ignore[assignment]
        served.dead = True
        served.there.clear()
        with pytest.raises(MachineError, match=r"died 3 times in a row.*no space left"):
            await asyncio.wait_for(engine.generate(GenerationRequest((1,), 0), Sampling(3)), 10)
        with pytest.raises(MachineError, match="died 3 times"):
            await asyncio.wait_for(engine.load(engine._policy, 2), 10)
        await engine.close()

    asyncio.run(test())


def test_a_first_load_needs_every_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        _, engine = served_by(tmp_path, monkeypatch)
        broken: Any = Served()
        broken.there.clear()
        engine.add(broken, Broken())  # type: ignore[arg-type]
        with pytest.raises(MachineError, match="died 1 times"):
            await asyncio.wait_for(engine.load(engine._policy, 0), 10)
        await engine.close()

    asyncio.run(test())


def test_a_running_server_that_is_gone_is_not_waited_for_and_joins_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(fleet, "GRACE", 0.1)
        _, engine = served_by(tmp_path, monkeypatch)
        gone: Any = Served()
        engine.add(gone)
        engine._fleet.servers[0].process = None
        await engine.load(engine._policy, 0)
        gone.there.clear()
        for version in (1, 2):
            await asyncio.wait_for(engine.load(engine._policy, version), 10)
            assert engine.metrics["engine/servers"] == 1.0
        assert [path.name[:10] for path in tmp_path.glob("weights-*")] == ["weights-2-"]
        gone.there.set()
        async with asyncio.timeout(10):
            while not engine._fleet.servers[1].is_usable:
                await asyncio.sleep(0.01)
        assert gone.weights.endswith(":2")
        await engine.load(engine._policy, 3)
        assert engine.metrics["engine/servers"] == 2.0
        await engine.close()

    asyncio.run(test())


def test_a_weights_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def open_it() -> None:
        settings = EngineSettings(name="vllm", weights_folder=str(tmp_path / "none"))
        async with open_vllm(tiny_policy(tmp_path), settings, tmp_path, 0):
            pass

    with pytest.raises(SettingsError, match=r"engine\.weights_folder = '.*none' is not a folder"):
        asyncio.run(open_it())


def test_a_weights_folder_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()

    async def open_it() -> None:
        settings = EngineSettings(name="vllm", weights_folder=str(deep))
        async with open_vllm(tiny_policy(tmp_path), settings, tmp_path, 0):
            pass

    with pytest.raises(SettingsError, match=r"sockets below it need a folder of at most 55 bytes"):
        asyncio.run(open_it())
