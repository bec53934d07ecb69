"""Checks tasks before training: references must pass, lazy programs and attacks must fail."""

from __future__ import annotations

from assay.check.report import TaskReport, check
from assay.check.trial import ProgramRunner

__all__ = ["ProgramRunner", "TaskReport", "check"]
