"""Tasks as rows and back, unchanged: what `check` and `screen` write, under `"format": "assay"`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import KINDS
from assay.registry import suggest
from assay.tasks.rows import Row
from assay.types import Task, as_dicts

FORMAT = "assay"
BUILT = ("format", "messages", "checks", "rate")
"""Fields that are not values of the task as they stand; `rate` is what `assay screen` measured."""
FITS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or isinstance(value, str),
    "int": lambda value: type(value) is int,
    "bool": lambda value: isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "Mapping[str, Any]": lambda value: isinstance(value, dict),
    "Mapping[str, str]": lambda value: (
        isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    ),
    "tuple[str, ...]": lambda value: (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ),
}
"""Whether a JSON value is what a field is declared as in types.py."""


def row_of(task: Task) -> dict[str, Any]:
    """The row of which `task_of` makes an equal task."""
    return {"format": FORMAT, **asdict(task), "messages": as_dicts(task.messages)}


def task_of(row: Row) -> Task:
    """The task that a row mirrors, text as it stands. Raises DataError for a field that is missing,
    unknown, or of another kind than the task's.
    """
    others = {name: value for name, value in row.fields.items() if name not in BUILT}
    messages = row.messages("messages") if row.fields.get("messages") else ()
    checks = tuple(_build(_kind(check), check.fields, row) for check in row.tables("checks"))
    if len({kind_of(check).in_worker for check in checks}) > 1:
        raise row.wrong(
            "'checks' mixes exchanges with others; a program either reads and prints or is called"
        )
    task: Task = _build(Task, others, row, checks=checks, messages=messages)
    return task


def _kind(check: Row) -> type[Any]:
    """The class of a check: each has a first field that no other has."""
    kinds = {fields(kind)[0].name: kind for kind in KINDS}
    for name, kind in kinds.items():
        if name in check.fields:
            return kind
    raise check.wrong(f"a check has none of {', '.join(sorted(kinds))}; give one of them")


def _build(kind: type[Any], table: Mapping[str, Any], row: Row, **built: Any) -> Any:
    declared = {field.name: str(field.type) for field in fields(kind) if field.name not in built}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in declared:
            raise row.wrong(f"unknown field {name!r}; {suggest(name, list(declared))}")
        if not FITS[declared[name]](value):
            raise row.wrong(f"{name!r} is {str(value)[:40]!r}; it must be {declared[name]}")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):  # what a program reads and prints may be any bytes
                row.encodable(name, text, "strict" if kind is Task else "surrogateescape")
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**values, **built)
    except TypeError as error:
        raise row.wrong(f"{str(error).partition('() ')[2]}; add it") from None
