"""Tasks as rows and back, unchanged: what `check` and `screen` write, under `"format": "assay"`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, fields
from typing import Any

from assay.judge.kinds.find import family
from assay.judge.kinds.kind import KINDS
from assay.registry import KINDS_OF_TESTS, import_installed, installed
from assay.suggestions import is_like, suggest
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
    "tuple[Mapping[str, Any], ...]": lambda value: (
        isinstance(value, list) and all(isinstance(item, dict) for item in value)
    ),
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
    if len({family(check) for check in checks}) > 1:
        raise row.wrong(
            "'checks' mixes exchanges with others; a program either reads and prints or is called"
        )
    task: Task = _build(Task, others, row, checks=checks, messages=messages)
    return task


def _kind(check: Row) -> type[Any]:
    """The class of a check: each has a first field that no other has.

    A union of pydantic's says less: for a wrong field it has an error for each class, in JSON it
    refuses half characters, which a program may print, and elsewhere it takes 1 for true.
    """
    for name in installed(KINDS_OF_TESTS):
        import_installed(KINDS_OF_TESTS, name)
    kinds = {fields(kind)[0].name: kind for kind in KINDS}
    for name, kind in kinds.items():
        if name in check.fields:
            return kind
    meant = next((name for name in check.fields if is_like(name, kinds)), "")
    what = suggest(meant, kinds) if meant else "give one of them"
    raise check.wrong(f"a check has none of {', '.join(sorted(kinds))}; {what}")


def type_name(field: Field[Any]) -> str:
    """What a field is declared as, as a key of FITS; a plug-in may declare classes, not texts."""
    name = field.type.__name__ if type(field.type) is type else str(field.type)
    return name.removeprefix("collections.abc.")


def _build(kind: type[Any], table: Mapping[str, Any], row: Row, **built: Any) -> Any:
    declared = {field.name: type_name(field) for field in fields(kind) if field.name not in built}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in declared:
            raise row.wrong(f"unknown field {name!r}; {suggest(name, list(declared))}")
        if declared[name] not in FITS:
            types = ", ".join(FITS)
            raise row.wrong(f"{name!r} is a field of the type {declared[name]}; use one of {types}")
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
