"""Real servers from the environment that `make test-vllm` builds, shared by tests of a kind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from assay.config.generation import EngineSettings
from assay.config.sections import LoraSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm.engine import VllmEngine, open_vllm
from assay.policy.forward import forward
from assay.policy.load_model import Policy
from assay.train.batch import to_batch
from assay.types import Completion, Sample
from tests.policies import tiny_policy

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent.parent
SETTINGS = EngineSettings(
    name="vllm",
    kv_cache_tokens=65_536,
    python=os.environ.get("ASSAY_VLLM", str(ROOT / ".venv-vllm" / "bin" / "python")),
)


@dataclass
class Desk:
    """A policy, an engine that generates with it, and the event loop of both tests and engine."""

    policy: Policy
    engine: VllmEngine
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    logs: Path
    version: int = 0

    async def move(self, scale: float = 0.02) -> list[torch.Tensor]:
        """Change the policy and load it as the next version. Returns the changed parameters."""
        self.version += 1
        draw = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.policy.trainable.values():
                parameter.add_(torch.randn(parameter.shape, generator=draw) * scale)
        kept = [parameter.detach().clone() for parameter in self.policy.trainable.values()]
        await self.engine.load(self.policy, self.version)
        return kept

    async def generate(
        self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, stop: tuple[str, ...] = ()
    ) -> list[Completion]:
        """All at once, in order."""
        return await asyncio.gather(
            *(
                self.engine.generate(GenerationRequest(prompt, n, stop), sampling)
                for n, prompt in enumerate(prompts)
            )
        )

    def off(
        self, prompt: tuple[int, ...], completion: Completion, temperature: float = 1.0
    ) -> torch.Tensor:
        """[T] how far its log-probabilities are from the policy's."""
        mask = (False,) * len(prompt) + (True,) * len(completion.tokens)
        batch = to_batch(
            [Sample(tokens=prompt + completion.tokens, mask=mask)], 0, self.policy.device
        )
        expected = forward(self.policy.model, batch, temperature).logprobs[batch.mask].detach()
        return (expected - torch.tensor(completion.logprobs)).abs()


@contextmanager
def at_desk(folder: Path, servers: int = 1, **changes: Any) -> Iterator[Desk]:
    if not Path(SETTINGS.python).exists():
        pytest.fail(
            f"there is no {SETTINGS.python}: make test-vllm builds it, ASSAY_VLLM names another"
        )
    policy = tiny_policy(folder, **changes)
    loop = asyncio.new_event_loop()
    settings = SETTINGS.model_copy(update={"data_parallel": servers})
    opened = open_vllm(policy, settings, folder, 0)
    try:
        engine = loop.run_until_complete(opened.__aenter__())
        loop.run_until_complete(engine.load(policy, 0))
        yield Desk(policy, engine, loop.run_until_complete, folder)
        loop.run_until_complete(opened.__aexit__(None, None, None))
    finally:
        loop.close()


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with at_desk(tmp_path_factory.mktemp("full")) as desk:
        yield desk


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with at_desk(tmp_path_factory.mktemp("adapted"), lora=LoraSettings(rank=4)) as desk:
        yield desk


@pytest.fixture(params=["full", "adapted"])
def desk(request: pytest.FixtureRequest) -> Desk:
    found: Desk = request.getfixturevalue(request.param)
    return found
