"""Test cases as PRIME, verl and SandboxFusion write them: inputs and outputs, of a program or of a function."""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay import extract
from assay.errors import DataError
from assay.types import Check, Exchange, Task

PRELUDE = """\
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from bisect import *
from typing import *
from builtins import *
import bisect, collections, functools, heapq, itertools, json, math, operator, random, re, string, sys
"""
"""What programs of these sets take to be there, as LeetCode has it."""
AGREES = """\
from math import inf, nan
def _agrees(got, expected):
    wrapped = expected[0] if isinstance(expected, list) and expected else expected
    return any(got == value or _plain(got) == value for value in (expected, wrapped))
def _plain(value):
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
"""
"""PRIME's rule: tuples count as lists, and an expected value may stand in a list of its own."""


def task_of(found: object) -> Task:
    """{"inputs", "outputs"} of a program, with "fn_name" of a function; {"assert_case": [...]}, or a list of asserts.

    Raises DataError for anything else.
    """
    asserts = found.get("assert_case") if isinstance(found, Mapping) else found
    if isinstance(asserts, list) and all(isinstance(one, str) for one in asserts):
        return assert_task(asserts)
    if not isinstance(found, Mapping) or not all(isinstance(found.get(key), list) for key in ("inputs", "outputs")):
        raise DataError('the test cases need lists "inputs" and "outputs", or asserts in a list "assert_case"')
    if found.get("fn_name"):
        return function_task(str(found["fn_name"]), found["inputs"], found["outputs"])
    return stdio_task(found["inputs"], found["outputs"])


def stdio_task(inputs: Sequence[object], outputs: Sequence[object]) -> Task:
    """A program that reads and prints; a case may be a list of lines. Raises DataError for unequal numbers or none."""
    _require_pairs(inputs, outputs)
    pairs = zip(map(_lines, inputs), map(_lines, outputs), strict=True)
    return Task(id="cases", prompt="", checks=tuple(Exchange(*pair) for pair in pairs), entry_point="")


def function_task(name: str, inputs: Sequence[object], outputs: Sequence[object]) -> Task:
    """A function (or a method of `Solution`), called with each input: a list of arguments, or a line of JSON for each.

    Raises DataError for unequal numbers, none, or text that is no JSON.
    """
    _require_pairs(inputs, outputs)
    if not name.isidentifier():
        raise DataError(f"fn_name is {name!r}; give the name of a function")
    checks = []
    for given, expected in zip(inputs, outputs, strict=True):
        arguments = [_json(line) for line in given.split("\n")] if isinstance(given, str) else given
        value = _json(expected) if isinstance(expected, str) else expected
        if not isinstance(arguments, list):
            raise DataError(f"an input is {arguments!r:.60}; give a list of arguments, or a line of JSON for each")
        checks.append(Check(f"assert _agrees({name}(*{arguments!r}), {value!r})"))
    return Task(id="cases", prompt="", checks=tuple(checks), entry_point=name, setup=AGREES)


def assert_task(asserts: Sequence[str]) -> Task:
    """A function that the asserts call. Raises DataError where there are none, or they call nothing."""
    for source in asserts:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DataError(f"an assert is no valid Python ({error}): {source[:60]!r}") from error
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not hasattr(builtins, node.func.id):
                return Task(id="cases", prompt="", checks=tuple(map(Check, asserts)), entry_point=node.func.id)
    raise DataError("no assert calls a function of the program's; give asserts that do")


def cut(task: Task, reply: str) -> str | None:
    """The program in a reply, as `extract.program` finds it; of a function's task it may be a class `Solution`."""
    a_class = bool(task.entry_point) and "class Solution" in reply
    return extract.program(replace(task, entry_point="Solution") if a_class else task, reply)


def completed(task: Task, program: str | None) -> str | None:
    """The program as these sets mean it to be run: common names imported, a method of `Solution` as a function."""
    if program is None or not task.entry_point:
        return program
    prelude = "" if "from __future__" in program else PRELUDE
    method = f"{task.entry_point} = Solution().{task.entry_point}\n" if "class Solution" in program else ""
    return f"{prelude}{program}\n{method}"


def _require_pairs(inputs: Sequence[object], outputs: Sequence[object]) -> None:
    if not inputs or len(inputs) != len(outputs):
        raise DataError(f"{len(inputs)} inputs and {len(outputs)} outputs; give as many of each, and at least one")


def _lines(text: object) -> str:
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"{text[:60]!r} is no JSON; write each argument and the result as JSON") from None
