"""Finds the kind of a check: each file of this folder, or of a plug-in, may have some."""

from __future__ import annotations

from importlib import import_module
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from assay.checks import AnyCheck
from assay.errors import DataError
from assay.judge.kinds.kind import KINDS, EachCheck, InWorker, Kind
from assay.judge.worker_messages import LOADED
from assay.plugin_code import source_of
from assay.types import Task

for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"assay.judge.kinds.{file.stem}")


def kind_of(check: AnyCheck) -> Kind[Any]:
    """The kind of a check."""
    return KINDS[type(check)]


def demonstration_of(task: Task) -> str | None:
    """The program that SFT learns where a task has no demonstrations; None without one."""
    first = task.checks[:1]
    return kind_of(first[0]).demonstration(first[0], task) if first else task.reference


def family(check: AnyCheck) -> type[Any]:
    """What the kind of a check is as far as other kinds go: checks of one family can stand in a
    task together.
    """
    kind = type(kind_of(check))
    return next((base for base in (InWorker, EachCheck) if issubclass(kind, base)), kind)


def texts_for_worker(kind: InWorker[Any]) -> dict[str, str]:
    """The file that a worker lacks of a kind: its text by module. Raises DataError where there is
    none, as in a notebook.
    """
    module = kind.wire.__module__
    if module in LOADED:
        return {}
    source = source_of(module)
    if source is None:
        raise DataError(f"the kind {type(kind).__name__} stands in no file; write it into one")
    return {module: decode_source(source)}
