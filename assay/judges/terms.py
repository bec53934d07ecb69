"""What a judge service offers, and how a task is sent to it: both ends of the wire use it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from assay.errors import DataError, SandboxError, SettingsError
from assay.judge import Judge
from assay.judge.edition import edition
from assay.judge.identity import codes_of
from assay.judge.kinds.kind import KINDS
from assay.languages import language_named, languages
from assay.plugin_code import code_of
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.tasks.exact import row_of
from assay.types import Task

KEPT_TASKS, KEPT_MB = 512, 256
"""Tasks that a service keeps by their keys, and their MiB."""
NOT_INSTALLED = 501
"""A service's answer to a task whose tools it lacks."""
FULL = "requests wait already"
"""What a service says, with 503, that has no place for one more."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a service offers."""

    slots: int
    judge: dict[str, str]
    """What its verdicts depend on beside task and program."""


def common_terms(limits: Limits, stop_early: bool) -> dict[str, str]:
    """Returns what verdicts of a judge here depend on, without this machine's tools and sandbox."""
    numbers = {name: f"{value:g}" for name, value in asdict(limits).items()}
    kinds = {
        f"kind of {judged.__name__}": hashlib.sha256(code.encode()).hexdigest()[:16]
        for judged, kind in KINDS.items()
        if (code := code_of(type(kind)))
    }
    return {"edition": edition().hex(), "stop_early": str(stop_early), **numbers, **kinds}


def terms_of(judge: Judge) -> Terms:
    """Returns what a judge here offers. Raises SandboxError where it is broken."""
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
    """Returns a task without what assay's own kinds do not need."""
    row = row_of(task if codes_of(task) else replace(task, demonstrations=(), tags={}))
    return Sendable(task, json.dumps(row), key_of(row))


def require_sendable(token: str, where: str) -> None:
    """Raises SettingsError for a token that no request can have in its head. `where` says where it
    stands.
    """
    if not (token.isascii() and token.isprintable()):
        raise SettingsError(
            f"{where} holds no token: a token is one line of ASCII letters, digits and signs; write"
            " one, such as the output of `openssl rand -hex 32`"
        )


def key_of(row: Mapping[str, object]) -> str:
    """Returns the key of a task's row."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
