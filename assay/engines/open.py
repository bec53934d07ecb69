"""Opens the engine that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay.config.sections import EngineSettings
from assay.engines.base import Engine

if TYPE_CHECKING:
    from assay.policy.load import Policy


@asynccontextmanager
async def open_engine(policy: Policy, settings: EngineSettings, *, apart: bool = False) -> AsyncIterator[Engine]:
    """An engine for `policy`, ended when the block is left; `apart` is one that may write while the policy learns."""
    from assay.engines.torch import TorchEngine

    engine = TorchEngine(policy, settings, apart=apart)
    try:
        yield engine
    finally:
        await engine.halt()
