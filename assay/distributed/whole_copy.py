"""The whole weights that the leader has beside its shard, for engines: where they are."""

import torch

from assay.algorithms import Algorithm
from assay.config.sections import RunSettings
from assay.policy.load_model import Policy


def generates(settings: RunSettings, algorithm: Algorithm) -> bool:
    """Whether an engine generates in this stage."""
    return algorithm.learns_from == "rollouts" or settings.evaluate is not None


def overlaps(settings: RunSettings, algorithm: Algorithm) -> bool:
    """Whether it generates while the policy learns."""
    return settings.rollout.max_staleness > 0 and algorithm.learns_from == "rollouts"


def generates_with_it(settings: RunSettings, algorithm: Algorithm) -> bool:
    """Whether the engine computes with the whole copy itself, which must then be on the device.
    Servers and an engine with a copy of its own are sent it; 4-bit weights stay where they are.
    """
    engine, used = settings.engine, generates(settings, algorithm)
    has_own = engine.copies_policy(overlaps(settings, algorithm))
    return bool(settings.policy.quantize) or (used and engine.kind.in_process and not has_own)


def to_host(whole: Policy) -> None:
    """Keep the whole weights in host memory from now on. `whole.device` stays the device on which
    the policy computes: `computing_on` brings blocks there.
    """
    whole.model.to(torch.device("cpu"))
