"""Whether a test has a library's class itself, of which a program answers an object: then a test
that fails may want more of the object than a handle does. Else it is no more than a wrong answer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from assay.judge.codec import Json
from assay.judge.codec_types import IMPORTED, TYPES
from assay.judge.task_code import parsed

NO_LIBRARIES = ("abc", "collections.abc", "dataclasses", "enum", "pytest", "typing", "unittest")
"""Modules that tests import for no object that a program might answer."""
SAYS = {"dtype", "object"}
"""Names by which a test has arrays that are no plain numbers."""


def has_class(texts: list[str], name: str, error: BaseException | None) -> bool:
    """Whether code has the class of this name, which one of its own imports brings: it asks whether
    something is of that class, or has handed the answer to that library, where it raised the error.
    Where it makes an object of that class and compares that, remote.py sees it.
    """
    trees = list(map(parsed, texts))
    names = {name for tree in trees for name in _names(tree)}
    if name == "ndarray":
        return bool(names & SAYS)
    owners = {
        str(getattr(owner, "__name__", "")).partition(".")[0]
        for tree in trees
        for owner in _imported(tree)
        if getattr(owner, "__name__", "") not in NO_LIBRARIES
        and _is_object_class(getattr(owner, name, None))
    }
    frames = walk_tb(error.__traceback__) if error else ()
    callers = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in frames}
    return bool(owners) and (name in names or not (owners - {"numpy"}).isdisjoint(callers))


def _is_object_class(kind: object) -> bool:
    """Whether it is a class of which a program's objects are not carried as data."""
    return isinstance(kind, type) and kind not in TYPES and kind.__name__ not in IMPORTED


def texts_in(data: Json) -> Iterator[str]:
    """All texts in a part of a job."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for part in data:
            yield from texts_in(part)


def _names(tree: ast.AST) -> Iterator[str]:
    """What code names, other than to call it."""
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) | ast.Attribute(attr=name) if id(node) not in functions:
                yield name


def _imported(tree: ast.AST) -> Iterator[Any]:
    """The modules that code imports, as far as they are loaded, and those that it imports from
    them.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(parts):
                yield from (sys.modules.get(part.name) for part in parts)
            case ast.ImportFrom(module=str(name), names=parts):
                yield sys.modules.get(name)
                yield from (sys.modules.get(f"{name}.{part.name}") for part in parts)
