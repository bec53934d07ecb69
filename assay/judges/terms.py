"""What a judge service offers, and how a task is sent to it: both ends of the wire use it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from assay.errors import DataError, SandboxError
from assay.judge import Judge
from assay.judge.verdict_cache import edition
from assay.languages import language_named, languages
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.tasks.exact import row_of
from assay.types import Task

KEPT_TASKS = 512
"""Tasks that a service keeps by their keys."""
FULL = "requests wait already"
"""What a service says, with 503, that has no place for one more."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a service offers."""

    slots: int
    judge: dict[str, str]
    """What its verdicts depend on beside task and program."""


def common_terms(limits: Limits, stop_early: bool) -> dict[str, str]:
    """What verdicts of a judge here depend on, but for this machine's tools and sandbox."""
    numbers = {name: f"{value:g}" for name, value in asdict(limits).items()}
    return {"edition": edition().hex(), "stop_early": str(stop_early), **numbers}


def terms_of(judge: Judge) -> Terms:
    """What a judge here offers. Raises SandboxError where it is broken."""
    if judge.broken:
        raise SandboxError(judge.broken)
    here = {"tier": probe_isolation().tier, **_tools()}
    return Terms(judge.slots, common_terms(judge.limits, judge.stop_early) | here)


def _tools() -> dict[str, str]:
    """The versions of the tools of each language that is installed."""
    tools: dict[str, str] = {}
    for name in languages:
        with contextlib.suppress(DataError):
            tools[f"tools of {name}"] = ", ".join(language_named(name).versions())
    return tools


@dataclass(frozen=True, slots=True)
class Sendable:
    """A task as it is sent to services."""

    task: Task
    row: str
    """As JSON."""
    key: str
    """Its digest: what the service gets that has the row already."""


def sendable(task: Task) -> Sendable:
    """A task, less what judging does not need."""
    row = row_of(replace(task, demonstrations=(), tags={}))
    return Sendable(task, json.dumps(row), key_of(row))


def key_of(row: Mapping[str, object]) -> str:
    """The key of a task's row."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
