"""Reads the bodies of requests: into jobs, and the tasks of large ones until they are ready."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from assay.bounded import size_of
from assay.errors import DataError
from assay.integrations import bodies
from assay.integrations.bodies import Work
from assay.judge.codec import short_int
from assay.judge.codec_types import CodecError
from assay.judge.identity import names_files
from assay.judge.prepared_task import PreparedTask, UnpreparableTask
from assay.sandbox.limits import Limits
from assay.types import Task


class NotJsonError(DataError):
    """A body is no JSON."""


@dataclass(frozen=True, slots=True)
class ReadBody:
    """What a large body holds, with its tasks made ready."""

    work: Work
    prepared: list[PreparedTask | UnpreparableTask]


def read(kind: str, body: bytes) -> Work:
    """The work of a body, which is a request of this class of bodies.py. Raises DataError."""
    try:
        fields = json.loads(body, parse_int=short_int)  # a client's may be long, and many
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise DataError(f"the body is a JSON {type(fields).__name__}; send an object")
    model: type[bodies.Request] = getattr(bodies, kind)
    try:
        request = model.model_validate(fields)
    except ValidationError as error:
        raise DataError(faults(error)) from None
    return request.work()


def read_and_prepare(kind: str, body: bytes, limits: Limits, stop_early: bool) -> ReadBody:
    """The same, with each task prepared for a judge with these limits."""
    work = read(kind, body)
    tasks = {id(job.task): job.task for job in work.jobs}
    return ReadBody(work, [*prepared(tasks.values(), limits, stop_early)])


def prepared(
    tasks: Iterable[Task], limits: Limits, stop_early: bool
) -> Iterator[PreparedTask | UnpreparableTask]:
    """The tasks, made ready, but for those whose files the judge must look at."""
    for task in tasks:
        if names_files(task):
            continue
        try:
            ready = PreparedTask(task, limits, stop_early)
            ready.complete()
        except (DataError, CodecError) as error:
            yield UnpreparableTask(task, error, size_of(task))
        else:
            yield ready


def faults(error: ValidationError) -> str:
    """Each wrong field, and why it is wrong."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
    )
