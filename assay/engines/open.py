"""Opens the engine that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.sections import EngineSettings
from assay.engines.base import Engine

if TYPE_CHECKING:
    from assay.policy.load import Policy


@asynccontextmanager
async def open_engine(
    policy: Policy,
    settings: EngineSettings,
    *,
    separate_copy: bool = False,
    logs: Path | None = None,
    seed: int = 0,
) -> AsyncIterator[Engine]:
    """An engine for `policy`, ended when the block is left; `separate_copy` is one that may write while the
    policy learns.

    A server that it starts has its log in the folder `logs`, by default this one.
    """
    if settings.name == "vllm":
        from assay.engines.vllm.engine import open_vllm

        async with open_vllm(policy, settings, logs or Path(), seed) as writing:
            yield writing
        return
    from assay.engines.torch import TorchEngine

    engine = TorchEngine(policy, settings, separate_copy=separate_copy)
    try:
        yield engine
    finally:
        await engine.halt()
