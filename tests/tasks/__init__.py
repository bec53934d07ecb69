"""Tests of the task sets."""

from __future__ import annotations

from assay.types import Check, Task


def sources(task: Task) -> list[str]:
    """The Python of a task's checks."""
    return [check.source for check in task.checks if isinstance(check, Check)]
