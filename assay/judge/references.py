"""Runs each task's own reference once: for expected values, which are cached on disk, and for the
proxy features and the time that the task needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from assay.errors import DataError, SandboxError
from assay.files import write_atomically
from assay.judge.codec import Unpacker, loads
from assay.judge.kinds.find import kind_of
from assay.judge.prepared_task import (
    FEATURES_TO_TRY,
    NO_FEATURES,
    ProxyFeatures,
    node_classes,
    time_factor,
)
from assay.judge.verdict import is_tasks_fault
from assay.judge.verdict_cache import CACHED, NOT_LASTING, BoundedDict, SharedWork, installed
from assay.languages import language_named
from assay.sandbox.limits import LONGEST
from assay.types import Execution, Task, Verdict

log = logging.getLogger(__name__)
VERSION = 3
"""Of the answers' JSON: increased when the codec writes a value in another way."""
OPAQUE = '{"opaque":'
"""Starts what is no data. Inside a JSON string the quote would be escaped."""
TRIALS = 3
"""Times that a reference is tried where it fails, each for a later program: what made it fail may
have been the machine."""
Answers = Callable[[Task], Awaitable[tuple[Execution, list[str]]]]
"""Runs a task's reference on its calls; returns the execution and the answers as JSON."""


async def with_expected_values(task: Task, answers: Answers) -> Task:
    """The task with an expected value in every call.

    Raises DataError for a call that cannot be read, or that the reference does not answer with data
    within the limits; SandboxError where the machine failed.
    """
    for number, check in enumerate(task.checks, start=1):
        if problem := kind_of(check).problem(check, task):
            raise DataError(f"task {task.id!r}, call {number}: {problem}")
    calls = tuple(check for check in task.checks if kind_of(check).is_open(check))
    if not calls or task.reference is None:
        return task
    # a checker is code of its own: what it did to the answers would stand for tasks without it
    without_checker = replace(task, checks=calls, hash_seed=0, checker="")
    file = _cache_file(without_checker)
    recorded = await asyncio.to_thread(_read, file, len(calls)) if file else None
    values = recorded or await _ask_reference(without_checker, answers)
    for number, value in enumerate(values, start=1):
        if OPAQUE in value and not task.checker:
            where = f"task {task.id!r}, call {number}"
            raise DataError(f"{where}: the reference's answer is no data; add a checker")
    if file and not recorded:
        await asyncio.to_thread(_write, file, values)
    left = iter(values)
    checks = ((kind_of(check), check) for check in task.checks)
    filled = (
        kind.closed(check, next(left)) if kind.is_open(check) else check for kind, check in checks
    )
    return replace(task, checks=tuple(filled))


async def _ask_reference(task: Task, answers: Answers) -> list[str]:
    execution, values = await answers(task)
    if is_tasks_fault(execution):
        raise DataError(f"task {task.id!r}: {execution.detail}; fix it")
    if execution.verdict is Verdict.INFRA:
        raise SandboxError(f"task {task.id!r}: its reference could not run: {execution.detail}")
    if execution.verdict is not Verdict.PASS or len(values) != len(task.checks):
        which = f"after {len(values)} of {len(task.checks)} calls"
        advice = "fix it, leave the call or the task out, or raise the judge's limits"
        if execution.verdict is Verdict.COMPILE:
            which += f" with {', '.join(language_named(task.language).versions())}"
        raise DataError(
            f"task {task.id!r}: its own reference fails {which} ({execution.verdict}):"
            f" {execution.detail}; {advice}"
        )
    return values


def _cache_file(task: Task) -> Path | None:
    """Where its expected values are cached; None for a user without a home."""
    checks, tools = list(map(repr, task.checks)), language_named(task.language).versions()
    python = *installed(), task.hash_seed, task.large
    parts = [VERSION, *python, task.reference, task.setup, task.entry_point, checks, tools]
    parts += node_classes(task)
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    folder = os.environ.get("XDG_CACHE_HOME") or _home_cache()
    return Path(folder) / "assay" / "expected" / f"{name}.json" if folder else None


@cache
def _home_cache() -> Path | None:
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        log.warning("expected values are not cached on disk: %s; set XDG_CACHE_HOME", error)
        return None


def _read(file: Path, count: int) -> list[str] | None:
    """The values in the file, if it exists and is valid."""
    try:
        values = json.loads(file.read_bytes())
        reader = Unpacker({"opaque": str, "recomputed": str}, nodes=sys.maxsize)
        for value in values:
            reader.value(loads(value.encode()))
        if type(values) is list and len(values) == count:
            return values
        raise ValueError(f"it does not hold {count} answers")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s cannot be used (%s): the reference runs again", file, error)
        return None


def _write(file: Path, values: list[str]) -> None:
    try:
        write_atomically(file, json.dumps(values))
    except OSError as error:
        log.warning("%s cannot be written (%s): the reference will run again", file, error)


Execute = Callable[[Task, str, ProxyFeatures], Awaitable[Execution]]


class References:
    """Runs references by `execute`, and by `answers` for expected values. `key`: task digest."""

    def __init__(self, execute: Execute, answers: Answers, cpu_seconds: float) -> None:
        self._execute = execute
        self._answers = answers
        self._cpu_seconds = cpu_seconds
        self._filled: SharedWork[bytes, Task] = SharedWork(CACHED)
        self._features: SharedWork[bytes, ProxyFeatures | None] = SharedWork(CACHED)
        self._cut_short: BoundedDict[bytes, None] = BoundedDict(CACHED)
        """Tasks whose reference ran out of time or memory when its features were sought."""
        self._failures: BoundedDict[bytes, int] = BoundedDict(CACHED)
        """How many times a task's reference was tried and failed."""

    async def with_expected_values(self, key: bytes, task: Task) -> Task:
        """The task with an expected value in every call.

        Raises DataError where the reference gives none, SandboxError where the machine failed.
        """
        make = partial(with_expected_values, task, self._answers)
        return await self._filled.get_or_make(key, make)

    async def features(self, key: bytes, task: Task) -> ProxyFeatures | None:
        """The first features with which the reference passes; None where it never does. Raises
        SandboxError.
        """
        return await self._features.get_or_make(key, partial(self._find_features, key, task))

    def known_features(self, key: bytes) -> ProxyFeatures | None:
        """The same, where it was found before; else None."""
        trial = self._features.get(key)
        if trial is None or not trial.done() or trial.cancelled() or trial.exception():
            return None
        return trial.result()

    def fails_too(self, key: bytes, execution: Execution) -> bool:
        """Whether a failure proves nothing: whatever was tried, the reference has failed, too."""
        reference_failed = key in self._failures and self.known_features(key) is None
        failed = execution.verdict in (Verdict.WRONG, Verdict.ERROR)
        return failed and reference_failed and self.settles(key, execution)

    def settles(self, key: bytes, execution: Execution) -> bool:
        """Whether the execution would be the same had the reference had more time and memory."""
        return execution.verdict is Verdict.PASS or key not in self._cut_short

    def close(self) -> None:
        """Cancel the trials that run."""
        self._filled.close()
        self._features.close()

    async def _find_features(self, key: bytes, task: Task) -> ProxyFeatures | None:
        self._cut_short.pop(key, None)
        first, has_code = "", any(kind_of(check).code(check) for check in task.checks)
        to_try = FEATURES_TO_TRY if has_code else (NO_FEATURES,)
        for features in (*to_try, to_try[0]):  # once more: a failure may be the machine's
            trial = replace(features, time_factor=float(LONGEST))
            execution = await self._execute(task, task.reference or "", trial)
            first = first or execution.detail
            if execution.verdict is Verdict.PASS:
                factor = time_factor(execution.cpu_seconds, self._cpu_seconds)
                changes = frozenset(execution.changes)
                return replace(features, changes=changes, time_factor=factor)
            if execution.verdict is Verdict.INFRA and not is_tasks_fault(execution):
                raise SandboxError(f"the task's reference could not be tried: {execution.detail}")
            if execution.verdict not in (Verdict.WRONG, Verdict.ERROR, Verdict.INFRA):
                if execution.verdict in NOT_LASTING:
                    self._cut_short[key] = None
                break
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] < TRIALS:
            self._features.pop(key, None)
        if self._failures[key] == 1:
            log.warning("task %s: its own reference fails: %s", task.id, first)
        return None
