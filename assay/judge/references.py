"""Runs each task's own reference once: for expected values, which are cached on disk, and for the
proxy features and the time that the task needs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.bounded import BoundedDict
from assay.errors import DataError, SandboxError
from assay.files import write_atomically
from assay.judge.codec import Unpacker, loads
from assay.judge.edition import edition
from assay.judge.identity import digest_of_task, surroundings_of
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import AsksReference
from assay.judge.prepared_task import (
    NO_FEATURES,
    ProxyFeatures,
    features_to_try,
    time_factor,
)
from assay.judge.shared_work import SharedWork
from assay.judge.verdict import ReferenceFailsError
from assay.judge.verdict_cache import CACHED, NOT_LASTING
from assay.judge.worker_messages import OBJECTS
from assay.languages import language_named
from assay.sandbox.limits import LONGEST
from assay.types import AnyCheck, Cause, Execution, Task, Verdict
from assay.user_cache import added, cache_folder, mark_used

log = logging.getLogger(__name__)
OPAQUE = '{"opaque":'
"""Starts what is no data. Inside a JSON string the quote would be escaped."""
FILLED_MB, SMALL_MB = 512, 16
"""MiB of tasks with their expected values, and of each kind of fact about references."""
MANY = 100
"""Checks of a task that are looked through in a thread if there are more: it takes a while."""
TRIALS = 3
"""Times that a reference is tried where it fails, each for a later program: what made it fail may
have been the machine."""
CUT_SHORT = frozenset((Verdict.TIMEOUT, Verdict.MEMORY))
ALIKE = {
    Verdict.TIMEOUT: CUT_SHORT,
    **dict.fromkeys((Verdict.WRONG, Verdict.ERROR), frozenset(Verdict) - CUT_SHORT),
}
"""By verdict of a program: those of the reference with which it proves nothing."""
Answers = Callable[[Task], Awaitable[tuple[Execution, list[str]]]]
"""Runs a task's reference on its calls; returns the execution and the answers as JSON."""


async def with_expected_values(task: Task, answers: Answers, by: Callable[[], bytes]) -> Task:
    """The task with an expected value in every call. by: the edition of the judge that asks.

    Raises DataError for a call that cannot be read, or that the reference does not answer with data
    within the limits; SandboxError where the machine failed.
    """
    if len(task.checks) > MANY:
        await asyncio.to_thread(require_judgeable, task)
    else:
        require_judgeable(task)
    calls = tuple(check for check in task.checks if asking(check))
    if not calls or task.reference is None:
        return task
    # a checker is code of its own: what it did to the answers would stand for tasks without it
    without_checker = replace(task, checks=calls, hash_seed=0, checker="")
    file = await asyncio.to_thread(_cache_file, without_checker, by)
    recorded = await asyncio.to_thread(_read, file, len(calls))
    values = recorded or await _ask_reference(without_checker, answers)
    for number, value in enumerate(values, start=1):
        if OPAQUE in value and not task.checker:
            where = f"task {task.id!r}, call {number}"
            raise ReferenceFailsError(f"{where}: the reference's answer is no data; add a checker")
    if not recorded:
        await asyncio.to_thread(_write, file, values)
    left = iter(values)
    filled = (
        kind.closed(check, next(left)) if (kind := asking(check)) else check
        for check in task.checks
    )
    return replace(task, checks=tuple(filled))


def require_judgeable(task: Task) -> None:
    """Raises DataError for a check that cannot be run."""
    for number, check in enumerate(task.checks, start=1):
        if problem := kind_of(check).problem(check, task):
            raise DataError(f"task {task.id!r}, call {number}: {problem}")


def asking(check: AnyCheck) -> AsksReference[Any] | None:
    """The kind of a check that needs the reference's answer; None where it needs none."""
    kind = kind_of(check)
    return kind if isinstance(kind, AsksReference) and kind.is_open(check) else None


async def _ask_reference(task: Task, answers: Answers) -> list[str]:
    execution, values = await answers(task)
    if execution.verdict is Verdict.UNJUDGED:
        error = DataError if execution.cause is Cause.TASK else ReferenceFailsError
        raise error(f"task {task.id!r}: {execution.detail}; fix it")
    if execution.verdict is Verdict.INFRA:
        raise SandboxError(f"task {task.id!r}: its reference could not run: {execution.detail}")
    if execution.verdict is not Verdict.PASS or len(values) != len(task.checks):
        which = f"after {len(values)} of {len(task.checks)} calls"
        advice = "fix it, leave the call or the task out, or raise the judge's limits"
        if execution.verdict is Verdict.COMPILE:
            which += f" with {', '.join(language_named(task.language).versions())}"
        raise ReferenceFailsError(
            f"task {task.id!r}: its own reference fails {which} ({execution.verdict}):"
            f" {execution.detail}; {advice}"
        )
    return values


def _cache_file(task: Task, by: Callable[[], bytes]) -> Path:
    """Where its expected values are cached."""
    name = digest_of_task(task, by(), surroundings_of(task)).hex()
    return cache_folder("expected") / f"{name}.json"


def _read(file: Path, count: int) -> list[str] | None:
    """The values in the file, if it exists and is valid."""
    try:
        values = json.loads(file.read_bytes())
        reader = Unpacker({"opaque": str, "recomputed": str}, nodes=sys.maxsize)
        for value in values:
            reader.value(loads(value.encode()))
        if type(values) is list and len(values) == count:
            mark_used(file)
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
        added(file)
    except OSError as error:
        log.warning("%s cannot be written (%s): the reference will run again", file, error)


class Failure(NamedTuple):
    """How often a task's reference was tried and failed, and how it failed the first time."""

    times: int
    why: str
    verdicts: frozenset[Verdict]
    """Of its trials, each with other features."""


Execute = Callable[[Task, str, ProxyFeatures], Awaitable[Execution]]


class References:
    """Runs references by `execute`, and by `answers` for expected values. `key`: task digest."""

    def __init__(self, execute: Execute, answers: Answers, cpu_seconds: float) -> None:
        self._execute = execute
        self._answers = answers
        self._cpu_seconds = cpu_seconds
        self._filled: SharedWork[bytes, Task | None] = SharedWork(CACHED, FILLED_MB)
        """None for a task whose calls all have their values: who asks has such a task, which may be
        prepared already, and long to prepare.
        """
        self._features: SharedWork[bytes, ProxyFeatures | None] = SharedWork(CACHED, SMALL_MB)
        self._cut_short: BoundedDict[bytes, None] = BoundedDict(CACHED, SMALL_MB)
        """Tasks whose reference ran out of time or memory when its features were sought."""
        self._failures: BoundedDict[bytes, Failure] = BoundedDict(CACHED, SMALL_MB)

    async def with_expected_values(self, key: bytes, task: Task) -> Task:
        """The task with an expected value in every call.

        Raises DataError where the reference gives none, SandboxError where the machine failed.
        """
        return await self._filled.get_or_make(key, partial(self._fill, task)) or task

    async def _fill(self, task: Task) -> Task | None:
        filled = await with_expected_values(task, self._answers, lambda: self._edition)
        return None if filled is task else filled

    @cached_property
    def _edition(self) -> bytes:
        return edition()  # which looks at a hundred files

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

    def why_it_fails_too(self, key: bytes, execution: Execution) -> str | None:
        """How the reference has failed, whatever was tried, where that says that the execution's
        failure proves nothing; else None. What fails for time or memory proves that alone.
        """
        failure = self._failures.get(key)
        if failure is None or self.known_features(key):
            return None
        if not failure.verdicts & ALIKE.get(execution.verdict, frozenset()):
            return None
        return failure.why

    def settles(self, key: bytes, execution: Execution) -> bool:
        """Whether the execution would be the same had the reference had more time and memory."""
        return execution.verdict is Verdict.PASS or key not in self._cut_short

    def close(self) -> None:
        """Cancel the trials that run."""
        self._filled.close()
        self._features.close()

    async def _find_features(self, key: bytes, task: Task) -> ProxyFeatures | None:
        self._cut_short.pop(key, None)
        verdicts = set[Verdict]()
        why, has_code = "", any(kind_of(check).code(check) for check in task.checks)
        to_try = features_to_try(task) if has_code else [NO_FEATURES]
        values, on_stand_ins = NO_FEATURES, None
        for features in (*to_try, to_try[0]):  # once more: a failure may be the machine's
            trial = replace(
                features, time_factor=float(LONGEST), arrays=values.arrays, aliases=values.aliases,
                subclasses=features.objects and values.subclasses,
            )  # fmt: skip
            execution = await self._execute(task, task.reference or "", trial)
            wider = trial.with_values(execution.changes)
            if execution.verdict is not Verdict.PASS and wider != trial:
                values = trial = wider
                execution = await self._execute(task, task.reference or "", trial)
            if not why or features == to_try[-1]:  # the most features hide the least of the failure
                why = f"{execution.verdict}: {execution.detail}"
            verdicts.add(execution.verdict)
            if execution.verdict is Verdict.PASS:
                factor = time_factor(execution.cpu_seconds, self._cpu_seconds)
                changes = frozenset(execution.changes)
                passing = replace(trial, changes=changes, time_factor=factor)
                if trial.objects or OBJECTS not in changes:
                    return passing
                on_stand_ins = on_stand_ins or passing
                continue
            if execution.verdict is Verdict.INFRA:
                raise SandboxError(f"the task's reference could not be tried: {execution.detail}")
            if execution.verdict not in (Verdict.WRONG, Verdict.ERROR, Verdict.UNJUDGED):
                if execution.verdict in NOT_LASTING:
                    self._cut_short[key] = None
                break
        if on_stand_ins:
            return on_stand_ins
        before = self._failures.get(key) or Failure(0, why, frozenset())
        self._failures[key] = before._replace(
            times=before.times + 1, verdicts=before.verdicts | verdicts
        )
        if self._failures[key].times < TRIALS:
            self._features.pop(key, None)
        return None
