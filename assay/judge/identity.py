"""Names what decides a verdict by its content, so that what is cached is found for nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from pathlib import PurePath
from reprlib import repr as shortened
from typing import Any

from assay.errors import DataError
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import KINDS, Kind
from assay.judge.task_code import node_classes
from assay.languages import language_named
from assay.plugin_code import code_of, modules_outside
from assay.types import Task

READ = ("checks", "entry_point", "setup", "checker", "reference", "large", "hash_seed", "needs")
"""The fields of a task that the judge and its own kinds read. A plug-in's may read any."""
EXACT = (complex, Decimal, Fraction, date, time, timedelta, range, PurePath)
"""Types of values of which Python shows all."""


def surroundings_of(task: Task) -> tuple[str, ...]:
    """What decides a verdict beside the text of task and program, as it is now: the contents of
    trees, environments and compilers, and the code of plug-ins. Raises DataError, and
    NotInstalledError where a tool is not there.
    """
    identity = language_named(task.language).identity()
    if are_plain(frozenset(map(type, task.checks))):
        return *identity, *("",) * len(task.checks)
    contents = (kind_of(check).surroundings(check) for check in task.checks)
    return *identity, *codes_of(task), *contents


def names_files(task: Task) -> bool:
    """Whether a verdict depends on files: tools, or what the checks name."""
    if language_named(task.language).tools:
        return True
    if are_plain(frozenset(map(type, task.checks))):
        return False
    kinds = {type(kind_of(check)) for check in task.checks}
    return any(kind.surroundings is not Kind.surroundings for kind in kinds)


@lru_cache(256)
def are_plain(judged: frozenset[type[Any]]) -> bool:
    """Whether assay's own kinds judge checks of these classes, by nothing but their texts. Each
    program asks this twice, and the answer for a class never changes: a plug-in's is no such class.
    """
    classes: set[Any] = {*judged, *(type(KINDS[each]) for each in judged)}
    in_files = any(type(KINDS[each]).surroundings is not Kind.surroundings for each in judged)
    return not (in_files or any(map(modules_outside, classes)))


def codes_of(task: Task) -> list[str]:
    """The code of the plug-ins that judge a task; empty where assay does."""
    classes = {*map(type, task.checks)}  # few, of maybe many checks
    classes |= {type(KINDS[judged]) for judged in classes}
    return sorted(filter(None, map(code_of, classes)))


def digest_of_task(task: Task, *others: object) -> bytes:
    """The digest of all of a task that decides, and of what else does. Raises DataError for a check
    that holds what is no data.
    """
    names = [field.name for field in fields(task)] if codes_of(task) else READ
    parts: list[object] = [[name, plain(getattr(task, name))] for name in names]
    parts += [repr(language_named(task.language)), node_classes(task), plain(others)]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).digest()


def plain(value: object) -> object:
    """JSON that no other value has. Raises DataError for what is no data."""
    if isinstance(value, Enum):
        return [type(value).__qualname__, value.name]
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return ["int", f"{value:x}"]  # Python writes no number of 5,000 digits
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, EXACT):
        return [type(value).__qualname__, repr(value)]
    if isinstance(value, Mapping):
        return ["dict", [[plain(key), plain(part)] for key, part in value.items()]]
    if isinstance(value, list | tuple):
        return [type(value).__qualname__, *map(plain, value)]
    if isinstance(value, Set):
        return ["set", *sorted(json.dumps(plain(part)) for part in value)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [[field.name, plain(getattr(value, field.name))] for field in fields(value)]
        return [type(value).__qualname__, parts]
    raise DataError(
        f"{shortened(value)}, of the type {type(value).__name__}, is no data: nobody can tell"
        " whether it changes; write texts, numbers, lists, tables or dataclasses into a check"
    )
