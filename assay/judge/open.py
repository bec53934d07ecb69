"""Opens the judge that the settings describe."""

from __future__ import annotations

from pathlib import Path

from assay.config.sections import JudgeSettings
from assay.judge import Judge
from assay.sandbox.limits import Limits


def open_judge(settings: JudgeSettings) -> Judge:
    """The judge that the settings describe. It runs every check, so that passed of total is exact.

    Enter it with `async with`; that starts its processes.
    """
    limits = Limits(
        cpu_seconds=settings.cpu_seconds,
        wall_seconds=settings.wall_seconds,
        memory_mb=settings.memory_mb,
    )
    return Judge(
        limits=limits,
        slots=settings.slots,
        stop_early=False,
        allow_weak=settings.allow_weak_isolation,
        archive=Path(settings.verdict_cache) if settings.verdict_cache else None,
    )
