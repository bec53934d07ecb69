"""HumanEval in q, as KX's evaluation harness has it: a function to write, and asserts in Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay.judge.codec import Packer
from assay.judge.codec_types import CodecError
from assay.syntax_trees import syntax_tree
from assay.tasks import task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Call, Task

Q_HUMANEVAL = PublicSet(
    "q_humaneval",
    "q_humaneval/q_humaneval.jsonl.gz",
    "KxSystems/q-evaluation-harness",
    splits=("test",),
)
MOST_TURNS = 100
UNREAD = "whose asserts are no plain calls"
Values = Mapping[str, int]


def power(base: float, exponent: float) -> Any:
    """A power that is quickly known."""
    if abs(exponent) > MOST_TURNS:
        raise ValueError(UNREAD)
    return base**exponent


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: power,
}  # fmt: skip
CONVERTED: dict[str, Callable[[Any], Any]] = {"str": str, "tuple": list, "list": list}


@task_set
def q_humaneval(split: str = "test") -> Iterator[Task]:
    """HumanEval in q (KX's q-evaluation-harness), its asserts as calls."""
    return usable_tasks(Q_HUMANEVAL.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with task_id, prompt, entry_point and `tests`, which is Python that defines `check`.

    Raises LeftOutError where that holds more than calls with constants.
    """
    try:
        checks = tuple(
            call
            for part in syntax_tree(row.text("tests")).body
            if isinstance(part, ast.FunctionDef)
            for statement in part.body
            for call in calls(statement, {})
        )
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, CodecError):
        raise LeftOutError(UNREAD) from None
    return Task(
        id=f"q_humaneval/{row.fields.get('task_id')}",
        prompt=row.text("prompt"),
        checks=checks,
        entry_point=row.text("entry_point"),
        language="q",
    )


def calls(statement: ast.stmt, values: Values) -> Iterator[Call]:
    """The calls of an assert, or of a loop over a range. Raises ValueError for anything else."""
    match statement:
        case ast.Expr(ast.Constant() | ast.Name()) | ast.Assert(ast.Constant(True)):
            return
        case ast.Assert(test):
            yield call(test, values)
        case ast.For(ast.Name(name), ast.Call(ast.Name("range"), bounds), body):
            for turn in range(*[value(bound, values) for bound in bounds])[:MOST_TURNS]:
                for inner in body:
                    yield from calls(inner, {**values, name: turn})
        case _:
            raise ValueError(UNREAD)


def call(test: ast.expr, values: Values) -> Call:
    """The call of what is asserted, with the value that it must give. Raises ValueError, CodecError
    for another form.
    """
    expected, tolerance = ast.Constant(True), 0.0  # type: ast.expr, float
    match test:
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(tested, ast.Sub(), right)]), [ast.Lt()], [least]
        ):
            expected, tolerance = right, value(least, values)
        case ast.Compare(ast.Call(ast.Name("tuple" | "list"), [tested]), [ast.Eq()], [right]):
            expected = right
        case ast.Compare(tested, [ast.Eq() | ast.Is()], [right]):
            expected = right
        case ast.UnaryOp(ast.Not(), tested):
            expected = ast.Constant(False)
        case tested:
            pass
    match tested:
        case ast.Call(ast.Name("candidate"), arguments, []):
            inputs = [value(argument, values) for argument in arguments]
            packed = Packer().text(inputs), Packer().text(value(expected, values))
            return Call(*packed, tolerance=float(tolerance))
    raise ValueError(UNREAD)


def value(node: ast.expr, values: Values) -> Any:
    """A constant, with the arithmetic in it done; tuples are lists. Raises ValueError, and what
    arithmetic raises.
    """
    match node:
        case ast.Name(name) if name in values:
            return values[name]
        case ast.List(items) | ast.Tuple(items):
            return [value(item, values) for item in items]
        case ast.Dict(keys, items):
            names = [value(key, values) for key in keys if key is not None]
            return dict(zip(names, [value(item, values) for item in items], strict=True))
        case ast.Call(ast.Name(name), [inner], []) if name in CONVERTED:
            return CONVERTED[name](value(inner, values))
        case ast.BinOp(left, operation, right) if type(operation) in OPERATORS:
            sides = value(left, values), value(right, values)
            numbers = set(map(type, sides)) <= {int, float}
            if numbers or (set(map(type, sides)) == {str} and isinstance(operation, ast.Add)):
                return OPERATORS[type(operation)](*sides)
    return ast.literal_eval(node)
