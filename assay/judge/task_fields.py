"""Whether the fields of a task have the types that they should: a task may be made by hand, or from
a row that nobody has read.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from reprlib import repr as shortened
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from assay.errors import DataError
from assay.judge.kinds.find import kind_of
from assay.types import AnyCheck, Task

WIDER = {float: int, tuple: list}
"""What may stand for another type."""
JUDGED = ("entry_point", "language", "setup", "checker", "reference", "hash_seed", "checks")
"""The fields of a task on which verdicts depend."""


def require_fields(task: Task) -> None:
    """Raises DataError for a task without checks, and for a field of it or of a check that is of
    another type.
    """
    types = field_types(Task)
    faults = [fault(name, getattr(task, name), types[name]) for name in JUDGED]
    if not any(faults) and not task.checks:
        raise DataError(f"task {task.id!r} has no checks: no program can be judged")
    for number, check in enumerate([] if any(faults) else task.checks, start=1):
        faults += [fault(f"check {number}, {name}", *pair) for name, pair in parts(check)]
    if wrong := next(filter(None, faults), ""):
        raise DataError(f"task {task.id!r}: {wrong}")


def parts(check: AnyCheck) -> list[tuple[str, tuple[object, Any]]]:
    """The fields of a check by their names: value and type. Raises DataError for what is none."""
    try:
        kind_of(check)
    except KeyError:
        raise DataError(f"{shortened(check)} is no check, and no kind judges it") from None
    types = field_types(type(check))
    names: list[str] = [field.name for field in fields(check)] if is_dataclass(check) else []
    return [(name, (getattr(check, name), types.get(name, object))) for name in names]


def fault(name: str, value: object, hint: Any) -> str:
    """What is wrong with the type of a field's value, if anything is."""
    if isinstance(value, classes(hint)):
        return ""
    return f"{name!r} is {shortened(value)}, of the type {type(value).__name__}"


@cache
def field_types(kind: type) -> dict[str, Any]:
    """The types of the fields of a dataclass; empty where a plug-in names what is not there."""
    try:
        return get_type_hints(kind)
    except NameError:
        return {}


def classes(hint: Any) -> tuple[type, ...]:
    """The classes that a value of a type may have; `object` where that is no matter of classes."""
    if isinstance(hint, UnionType):
        return tuple(kind for part in get_args(hint) for kind in classes(part))
    kind = object if hint is Any else get_origin(hint) or hint
    if kind in WIDER:
        return kind, WIDER[kind]
    return (kind,) if isinstance(kind, type) else (object,)
