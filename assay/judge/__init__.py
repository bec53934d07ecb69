"""Decides whether programs pass their tests. The candidate process gets inputs and returns data; it
decides nothing.

The public names load on first use, because zygotes import this package too and must stay small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.judge.base import AnyJudge, Job, LocalJudge
    from assay.judge.judge import Judge, judge_all
    from assay.judge.kinds.workbench import Run

__all__ = ["AnyJudge", "Job", "Judge", "LocalJudge", "Run", "judge_all"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.judge import base, judge

    return getattr(judge if name in vars(judge) else base, name)
