"""A program that always returns the first test's answer. If it passes, the tests are too weak."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

from assay.judge.codec import Unpacker
from assay.types import Call, Check, Exchange, Task, TestFunctions

NAMES = """from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
import datetime
inf, nan = float("inf"), float("nan")
"""
"""Names that the `repr` of a value may use."""


def constant_program(task: Task) -> str | None:
    """The program, in Python. None if the first answer is not known without running something."""
    first, name = task.checks[0], task.function
    if isinstance(first, Exchange):
        return f"import sys\nsys.stdout.write({first.stdout!r})"
    if isinstance(first, Call):
        return _of_call(first, task)
    sources = (
        check.module if isinstance(check, TestFunctions) else check.source
        for check in task.checks
        if isinstance(check, Check | TestFunctions)
    )
    answer = next((value for source in sources for value in _expected(source, name)), None)
    return None if answer is None else f"def {name}(*args, **kwargs):\n    return {answer}"


def _of_call(call: Call, task: Task) -> str | None:
    """Without an expected value in the call, the program runs the reference once for the answer."""
    try:
        value = Unpacker().value(
            json.loads(call.arguments if call.expected is None else call.expected)
        )
    except ValueError:
        return None
    if call.expected is not None:
        return f"{NAMES}def {task.function}(*args, **kwargs):\n    return {value!r}"
    if task.reference is None or task.function != task.entry_point:
        return None
    head = f"{task.reference}\n{NAMES}first_answer = {task.entry_point}(*{value!r})"
    return f"{head}\ndef {task.function}(*args, **kwargs):\n    return first_answer"


def _expected(source: str, name: str) -> Iterator[str]:
    """The expected values of a check's asserts, in order, as Python expressions."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    for test in sorted(tests, key=lambda node: (node.lineno, node.col_offset)):
        if _calls(test, name):
            yield "True"
        elif (
            isinstance(test, ast.UnaryOp)
            and isinstance(test.op, ast.Not)
            and _calls(test.operand, name)
        ):
            yield "False"
        elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.Is):
            left, right = test.left, test.comparators[0]
            if _calls(left, name) or _calls(right, name):
                yield ast.unparse(right if _calls(left, name) else left)


def _calls(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in (name, "candidate")
    )
