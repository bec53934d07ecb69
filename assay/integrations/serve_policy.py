"""Serves one policy to agents until a signal stops it; nothing is learned."""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_urlsafe

from assay.agents.app import build
from assay.agents.session import CallSession, ServedPolicy
from assay.config.generation import EngineSettings
from assay.config.sections import PolicySettings
from assay.engines.base import Sampling
from assay.engines.open_engine import open_engine
from assay.environments import CallLimits
from assay.integrations.serve import listening, until_stopped
from assay.maths.seeds import derive
from assay.policy.source import evaluated_sources

REMEMBERED = 1024
"""Replies of a key that a later call may continue; the oldest are forgotten."""
WITHOUT_END = CallLimits(calls=sys.maxsize, seconds=math.inf, paid_roots="all")


async def serve_policy(
    settings: PolicySettings,
    sampling: Sampling,
    host: str,
    port: int,
    keys: int,
    seed: int,
    announce: Callable[[str, Sequence[str]], None],
) -> None:
    """Serve the model of `settings` on `keys` keys until SIGINT or SIGTERM; port 0 takes a free
    one. `announce` gets the URL, up to /v1, and the keys.

    Raises SettingsError for an address that is not available, ModelError for a model that cannot be
    used.
    """
    from assay.policy.load_model import load_policy

    source = evaluated_sources(settings, every=False)[0]
    with listening(host, port) as listener:
        policy = load_policy(settings.model_copy(update={"model": source.name}), source)
        async with open_engine(policy, EngineSettings(), logs=Path(), seed=seed) as engine:
            await engine.load(policy, 0)
            served = ServedPolicy(
                engine.generate, policy.chat, sampling, policy.context, name=Path(source.name).name
            )
            sessions = {
                token_urlsafe(32): CallSession(
                    served, derive(seed, "key", number), WITHOUT_END, most=REMEMBERED
                )
                for number in range(keys)
            }
            await until_stopped(
                build(sessions), listener, lambda origin: announce(f"{origin}/v1", [*sessions])
            )
