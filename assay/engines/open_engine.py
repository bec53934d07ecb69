"""Opens the engine that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.generation import EngineSettings
from assay.engines.base import Engine, HostedModel, Opening, engine, engines
from assay.sync import in_own_thread

if TYPE_CHECKING:
    from assay.policy.load_model import Policy


def open_engine(
    policy: Policy | HostedModel,
    settings: EngineSettings,
    *,
    separate_copy: bool = False,
    generates: bool = True,
    logs: Path | None = None,
    seed: int = 0,
) -> AbstractAsyncContextManager[Engine]:
    """An engine for `policy`, closed when the block ends.

    With `separate_copy` it can generate while the policy learns. A vLLM server that it starts logs
    to the folder `logs`, by default the current one. Raises ModelError for a model that it cannot
    decode, unless the run never `generates`; SettingsError for an unknown engine, and for what vLLM
    cannot serve.
    """
    opening = Opening(policy, settings, logs or Path(), seed, separate_copy, generates)
    return engines[settings.name](opening)


@engine
async def torch(opening: Opening[Policy]) -> AsyncIterator[Engine]:
    """Generates in this process, with the policy's own weights or a copy."""
    from assay.engines.torch import TorchEngine

    running = TorchEngine(opening.policy, opening.settings, separate_copy=opening.separate_copy)
    if opening.generates:
        await in_own_thread(running.check)
    try:
        yield running
    finally:
        await running.halt()


@engine
async def vllm(opening: Opening[Policy]) -> AsyncIterator[Engine]:
    """Servers of vLLM, which assay starts or which run already."""
    from assay.engines.vllm.engine import open_vllm  # imports torch

    settings, logs = opening.settings, opening.logs
    async with open_vllm(opening.policy, settings, logs, opening.seed) as running:
        yield running
