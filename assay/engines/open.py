"""Opens the engine that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.generation import EngineSettings
from assay.engines.base import Engine
from assay.sync import in_own_thread

if TYPE_CHECKING:
    from assay.policy.load import Policy


@asynccontextmanager
async def open_engine(
    policy: Policy,
    settings: EngineSettings,
    *,
    separate_copy: bool = False,
    generates: bool = True,
    logs: Path | None = None,
    seed: int = 0,
) -> AsyncIterator[Engine]:
    """An engine for `policy`, closed when the block ends.

    With `separate_copy` it can generate while the policy learns. A vLLM server that it starts logs
    to the folder `logs`, by default the current one. Raises ModelError for a model that it cannot
    decode, unless the run never `generates`; SettingsError for what vLLM cannot serve.
    """
    if settings.name == "vllm":
        from assay.engines.vllm.engine import open_vllm

        async with open_vllm(policy, settings, logs or Path(), seed) as vllm:
            yield vllm
        return
    from assay.engines.torch import TorchEngine

    engine = TorchEngine(policy, settings, separate_copy=separate_copy)
    if generates:
        await in_own_thread(engine.check)
    try:
        yield engine
    finally:
        await engine.halt()
