"""Opens the judge that the settings name."""

from __future__ import annotations

from pathlib import Path

from assay.config.sections import JudgeSettings
from assay.judge import AnyJudge, Judge
from assay.sandbox.limits import Limits


def open_judge(settings: JudgeSettings) -> AnyJudge:
    """Returns the judge that the settings describe. It runs every check, so that passed of total is
    exact.

    Enter it with `async with`, which starts its processes or asks its services.
    """
    limits = Limits(settings.cpu_seconds, settings.wall_seconds, settings.memory_mb)
    if settings.servers:
        from assay.judges.pool import ServicePool

        return ServicePool(settings.servers, limits, settings.allow_forgeable)
    weak, forgeable = settings.allow_weak_isolation, settings.allow_forgeable
    archive = Path(settings.verdict_cache) if settings.verdict_cache else None
    return Judge(
        limits,
        settings.slots,
        stop_early=False,
        allow_weak=weak,
        archive=archive,
        allow_forgeable=forgeable,
    )
