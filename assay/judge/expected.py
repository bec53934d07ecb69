"""The right answers that a task leaves to its reference: found once, behind the same walls, and
kept on disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from assay.errors import DataError, SandboxError
from assay.files import write_atomically
from assay.judge.codec import CodecError, Json, Unpacker, loads
from assay.types import Call, Check, Exchange, Execution, Task, Verdict

log = logging.getLogger(__name__)
VERSION = 1
"""Of what an answer looks like as JSON: raised when the codec writes a value in another way."""
OPAQUE = '{"opaque":'
"""Begins what is no data. Inside a string of an answer's JSON the quote would be escaped."""
Answers = Callable[[Task], Awaitable[tuple[Execution, list[str]]]]
"""Runs a task's reference on its calls: how that ended, and the answers."""


async def completed(task: Task, answers: Answers) -> Task:
    """The task with an expected value in every call.

    Raises DataError for a call that cannot be read, or that the reference does not answer with data
    inside the limits; SandboxError where the machine failed.
    """
    for number, check in enumerate(task.checks, start=1):
        if isinstance(check, Call):
            _refuse_unreadable(task, number, check)
    sought = [check for check in task.checks if isinstance(check, Call) and check.expected is None]
    if not sought:
        return task
    file = _file(task, sought)
    found = await asyncio.to_thread(_kept, file, len(sought))
    if found is None:
        found = await _asked(replace(task, checks=tuple(sought)), answers)
        await asyncio.to_thread(_keep, file, found)
    left = iter(found)
    return replace(task, checks=tuple(_filled(check, left) for check in task.checks))  # type: ignore[arg-type]


def fields_of(check: Check | Call) -> Json:
    """One check on its way to the worker: a source, or [arguments, [expected] or None,
    tolerance].
    """
    if isinstance(check, Call):
        expected = None if check.expected is None else [loads(check.expected.encode())]
        return [loads(check.arguments.encode()), expected, check.tolerance]
    return check.source


def _filled(check: Check | Call | Exchange, answers: Iterator[str]) -> Check | Call | Exchange:
    return (
        replace(check, expected=next(answers))
        if isinstance(check, Call) and check.expected is None
        else check
    )


def _refuse_unreadable(task: Task, number: int, call: Call) -> None:
    try:
        arguments, expected, _ = fields_of(call)
        reader = Unpacker({"opaque": str}, nodes=sys.maxsize)
        if type(reader.value(arguments)) is not list:
            raise CodecError("the arguments are no list")
        reader.value(expected)
    except CodecError as error:
        raise DataError(
            f"task {task.id!r}, call {number}: {error}; write it in the judge's JSON"
        ) from None
    if call.expected is None and task.reference is None:
        raise DataError(
            f"task {task.id!r}, call {number}: no expected value, and no reference to ask; add one"
            " of them"
        )


async def _asked(task: Task, answers: Answers) -> list[str]:
    execution, found = await answers(task)
    if execution.verdict is Verdict.INFRA:
        raise SandboxError(
            f"task {task.id!r}: its reference could not be asked: {execution.detail}"
        )
    if execution.verdict is not Verdict.PASS or len(found) != len(task.checks):
        which = f"after {len(found)} of {len(task.checks)} calls"
        advice = "mend it, leave the call out, or raise the judge's limits"
        raise DataError(
            f"task {task.id!r}: its own reference fails {which} ({execution.verdict}):"
            f" {execution.detail}; {advice}"
        )
    for number, answer in enumerate(found, start=1):
        if OPAQUE in answer and not task.checker:
            raise DataError(
                f"task {task.id!r}, call {number}: the reference's answer is no data; give it a"
                " checker"
            )
    return found


def _file(task: Task, sought: Sequence[Call]) -> Path:
    calls = [call.arguments for call in sought]
    parts = [VERSION, sys.version_info[:2], task.reference, task.setup, task.entry_point, calls]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "assay"
        / "expected"
        / f"{name}.json"
    )


def _kept(file: Path, count: int) -> list[str] | None:
    """What the file holds, if it is whole."""
    try:
        found = json.loads(file.read_bytes())
        reader = Unpacker({"opaque": str}, nodes=sys.maxsize)
        for answer in found:
            reader.value(loads(answer.encode()))
        if type(found) is list and len(found) == count:
            return found
        raise ValueError(f"it does not hold {count} answers")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s cannot be used (%s): the reference is asked again", file, error)
        return None


def _keep(file: Path, found: list[str]) -> None:
    try:
        write_atomically(file, json.dumps(found))
    except OSError as error:
        log.warning("%s cannot be written (%s): the reference will be asked again", file, error)
