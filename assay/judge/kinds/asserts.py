"""Checks: Python that raises where the program is wrong. Most are one assert."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from assay.checks import Check
from assay.judge.kinds.calls import WorkerContext
from assay.judge.kinds.kind import InWorker, Part
from assay.judge.task_code import parsed
from assay.judge.test_code import require_asked, run_piece
from assay.judge.worker_messages import Outcome

if TYPE_CHECKING:
    from assay.types import Task

LONGEST = 600
"""Characters shown of one side of a check, or of an input."""


def run(source: str, number: int, context: WorkerContext) -> list[Part]:
    """One part."""
    return [partial(run_check, source, number, context)]


def run_check(source: str, number: int, context: WorkerContext) -> Outcome:
    """Run one check in the namespace that all share."""
    names_before = set(context.namespace)
    piece = (source, f"<check {number}>")
    act = partial(run_piece, piece, context.namespace, context.connection)
    outcome = require_asked(act, context.connection, source)
    if outcome.how != "unasked":
        context.builtin.take_answers(context.namespace, names_before, source)
    return outcome


def short(text: str) -> str:
    """The text, cut off after LONGEST characters."""
    text = text.strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def constant(source: str, task: Task) -> str | None:
    """A program that always returns the first expected value of a source's asserts."""
    answer = next(expected_values(source, task.function), None)
    return answer and f"def {task.function}(*args, **kwargs):\n    return {answer}"


def expected_values(source: str, name: str) -> Iterator[str]:
    """The expected values of asserts that call `name`, in order, as Python expressions."""
    tests = [node.test for node in ast.walk(parsed(source)) if isinstance(node, ast.Assert)]
    for test in sorted(tests, key=lambda node: (node.lineno, node.col_offset)):
        match test:
            case ast.Call() if _calls(test, name):
                yield "True"
            case ast.UnaryOp(ast.Not(), operand) if _calls(operand, name):
                yield "False"
            case ast.Compare(left, [ast.Eq() | ast.Is(), *_], [right, *_]):
                if _calls(left, name) or _calls(right, name):
                    yield ast.unparse(right if _calls(left, name) else left)


def _calls(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in (name, "candidate")
    )


class Asserts(InWorker[Check], judges=Check):
    """Each is Python that a worker runs."""

    def wire(self, check: Check) -> str:
        """Its source."""
        return check.source

    def code(self, check: Check) -> list[str]:
        """Its source."""
        return [check.source]

    def show(self, check: Check, task: Task) -> str:
        """Its source."""
        return check.source

    def failure(self, check: Check, detail: str, wrong: bool) -> str:
        """The check and the detail."""
        return f"{short(check.source)}: {detail}"

    def answer(self, check: Check, task: Task) -> str | None:
        """Returns what the first assert expects."""
        return constant(check.source, task)
