"""Test cases of coding sites' problems: inputs and outputs of a program, or of a function."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.judge.codec import Packer
from assay.tasks.rows import LeftOutError, Row
from assay.tasks.stdio import program_task, with_parsed
from assay.types import Call, Exchange, Task

PRELUDE = """\
from copy import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from bisect import *
from typing import *
from builtins import *
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator
import random, re, string, sys
sys.setrecursionlimit(50_000)
"""
"""What programs of these sets use without importing it, as on LeetCode."""
EQUAL = """\
def check(arguments, value, expected):
    return value == expected or plain(value) == expected

def plain(value):
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
"""
"""LiveCodeBench's rule: tuples count as lists, for JSON has no tuples."""
AGREES = """\
from math import isclose

def check(arguments, value, expected):
    is_wrapped = isinstance(expected, list) and len(expected) == 1
    rights = [expected, *expected] if is_wrapped else [expected]
    return any(value == right or same(value, right) for right in rights)

def same(value, right):
    if isinstance(value, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(value) == len(right) and all(map(same, value, right))
    if isinstance(value, dict) and isinstance(right, dict):
        value = {str(key) if type(key) is int else key: item for key, item in value.items()}
        return value.keys() == right.keys() and all(same(value[key], right[key]) for key in right)
    both_floats = type(value) is type(right) is float
    return value == right or both_floats and isclose(value, right, rel_tol=1e-9, abs_tol=1e-9)
"""
"""PRIME's and TACO's rule: a list may wrap the expected value, tuples count as lists, and a key of
JSON may be a whole number. Floats have Codewars' tolerance of 1e-9; PRIME's and TACO's have none.
"""
AS_JSON = """\
from collections.abc import Iterator
from math import isclose

def check(arguments, value, expected):
    return same(value, expected)

def same(value, right):
    if isinstance(value, (tuple, set, frozenset, Iterator)):
        value = list(value)
    if isinstance(value, list) and isinstance(right, list):
        return len(value) == len(right) and all(map(same, value, right))
    if isinstance(value, dict) and isinstance(right, dict):
        value = {str(key) if type(key) is int else key: item for key, item in value.items()}
        return value.keys() == right.keys() and all(same(value[key], right[key]) for key in right)
    if type(value) in (int, float) and type(right) is float:
        is_nan = value != value and right != right
        return is_nan or isclose(value, right, rel_tol=0, abs_tol=TOLERANCE)
    return value == right
"""
"""QuixBugs' rule: a value is compared as what JSON makes of it; what a generator yields is a list.
Follows a line with the TOLERANCE."""
ONE_ANSWER = ("", "floats", EQUAL, AGREES)
"""The checkers that the form of a row chooses; they accept one answer."""
CLASS = re.compile(r"^class Solution\b", re.MULTILINE)
METHOD = re.compile(r"^[ \t]+def (\w+)\(\s*self", re.MULTILINE)
READS = re.compile(r"input\(|\bstdin\b")
FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cases:
    """Inputs and outputs as a row holds them."""

    inputs: list[Any]
    outputs: list[Any]
    is_function: bool = False
    """Whether they are the arguments and values of a function, not what a program reads and
    prints."""
    name: str = ""
    """The function's, where the row names it."""
    checker: str = AGREES
    """Compares a function's value with the expected one."""
    visible: int = 0
    """So many of the first cases stand in the prompt."""


def cases_of(value: object) -> Cases:
    """The cases of {"inputs", "outputs"}, with "fn_name" for a function, or of a list of {"input",
    "output"}, with `type` or `testtype`, `fn_name` or a `metadata` that holds `func_name`.

    Raises LeftOutError for anything else, and for no cases at all.
    """
    checker = AGREES
    if isinstance(value, Mapping):
        inputs, outputs, name = map(value.get, ("inputs", "outputs", "fn_name"))
        kinds = {bool(name)}
    else:
        rows = [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []
        inputs, outputs = ([row.get(field) for row in rows] for field in ("input", "output"))
        name = next(filter(None, map(_function, rows)), None)
        kinds = {_is_call(row) for row in rows}
        if any("testtype" in row for row in rows):
            checker = EQUAL
    if not (isinstance(inputs, list) and isinstance(outputs, list) and inputs):
        raise LeftOutError("without tests")
    if len(inputs) != len(outputs) or len(kinds) > 1:
        raise LeftOutError("whose inputs and outputs do not go together")
    return Cases(inputs, outputs, kinds.pop(), str(name or ""), checker)


def joined(first: Cases, rest: Cases) -> Cases:
    """The cases of both; those of the first stand in the prompt. Raises LeftOutError where they
    are of two kinds.
    """
    if first.is_function != rest.is_function:
        raise LeftOutError("whose inputs and outputs do not go together")
    return replace(
        first,
        inputs=first.inputs + rest.inputs,
        outputs=first.outputs + rest.outputs,
        visible=len(first.inputs),
    )


def task_of_cases(
    task_id: str,
    prompt: str,
    cases: Cases,
    *,
    starter: str = "",
    reference: str | None = None,
) -> Task:
    """The task of cases. `starter` is code that begins a function's program.

    Raises LeftOutError where the cases do not say what is read, or what is called with what.
    """
    if not cases.is_function:
        if (CLASS.search(starter) or FUNCTION.search(starter)) and not READS.search(starter):
            raise LeftOutError("whose starter code is a function's, but whose tests name none")
        return program_task(task_id, prompt, _exchanges(cases), reference)
    return function_task(
        task_id,
        prompt,
        _calls(cases),
        entry_point=_entry_point(cases, starter),
        starter=starter,
        reference=reference and with_prelude(reference),
        checker=cases.checker,
    )


def question_task(task_id: str, row: Row) -> Task:
    """The task of a row of APPS or TACO: `question`, `input_output`, `starter_code` and
    `solutions`, of which the first is the reference.

    Raises LeftOutError for a row without usable tests, DataError for a malformed one.
    """
    solutions = Row({"solutions": parsed_json(row, "solutions")}, row.where)
    return task_of_cases(
        task_id,
        row.text("question"),
        cases_of(parsed_json(row, "input_output")),
        starter=row.text("starter_code", default=""),
        reference=next(iter(solutions.texts("solutions")), None),
    )


def function_task(
    task_id: str,
    prompt: str,
    checks: tuple[Any, ...],
    *,
    entry_point: str,
    starter: str,
    prelude: str = PRELUDE,
    **fields: Any,
) -> Task:
    """A task that shows its problem as comments, below the prelude and above the starter code."""
    problem = "".join(f"# {line}".rstrip() + "\n" for line in prompt.strip().split("\n"))
    opening = starter.strip("\n").rstrip() or f"# Define `{entry_point.rpartition('().')[2]}`."
    stub = f"{prelude}\n{problem}\n{opening}\n"
    return Task(task_id, prompt, checks, entry_point, stub=stub, **fields)


def with_prelude(program: str) -> str:
    """The program below the common imports."""
    return program if "from __future__" in program else f"{PRELUDE}\n{program}"


def first_block(text: str) -> str:
    """The code in the first fenced block of a text, or else all of it."""
    fenced = re.search(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return fenced[1] if fenced else text


def _is_call(case: Mapping[str, Any]) -> bool:
    kind = case.get("testtype") or case.get("type")
    return kind in ("functional", "function_call") if kind else bool(_function(case))


def _function(case: Mapping[str, Any]) -> Any:
    metadata = case.get("metadata")
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return case.get("fn_name") or name


def _entry_point(cases: Cases, starter: str) -> str:
    """`f` where the starter code defines that function; else `Solution().f`, for which the judge
    takes a method of a class Solution, or else a function.
    """
    function, start = FUNCTION.search(starter), CLASS.search(starter)
    method = METHOD.search(starter, start.end()) if start else None
    name = cases.name or next((match[1] for match in (method, function) if match), "")
    if not name.isidentifier():
        raise LeftOutError("that name no function")
    return name if function and function[1] == name else f"Solution().{name}"


def _exchanges(cases: Cases) -> tuple[Exchange, ...]:
    texts = [list(map(_text, side)) for side in (cases.inputs, cases.outputs)]
    return tuple(
        Exchange(stdin, stdout, hidden=n >= cases.visible)
        for n, (stdin, stdout) in enumerate(zip(*texts, strict=True))
    )


def _text(value: Any) -> str:
    """What is read or printed: a string, or a list of lines; they end as here, not as on Windows.
    Raises LeftOutError.
    """
    lines = value if isinstance(value, list) else [value]
    if not all(isinstance(line, str) for line in lines):
        raise LeftOutError("whose inputs or outputs are no text")
    return "\n".join(lines).replace("\r\n", "\n")


def _calls(cases: Cases) -> tuple[Call, ...]:
    """An input may be text with a line of JSON for each argument; its output is JSON then."""
    inputs, expected = list(cases.inputs), list(cases.outputs)
    try:
        for at, (text, value) in enumerate(zip(inputs, expected, strict=True)):
            if isinstance(text, str):
                inputs[at] = list(map(json.loads, text.split("\n")))
                expected[at] = json.loads(value) if isinstance(value, str) else value
        packed = [[Packer().text(value) for value in side] for side in (inputs, expected)]
    except (ValueError, RecursionError):
        raise LeftOutError("whose inputs or outputs are no JSON") from None
    if not all(isinstance(arguments, list) for arguments in inputs):
        raise LeftOutError("whose inputs are no arguments")
    return tuple(
        Call(arguments, value, hidden=at >= cases.visible)
        for at, (arguments, value) in enumerate(zip(*packed, strict=True))
    )


def parsed_json(row: Row, name: str) -> Any:
    """A field that is data, or its JSON; None where it is missing or empty. Raises DataError."""
    return with_parsed(row, name).fields.get(name)
