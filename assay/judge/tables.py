"""Makes tables of tests that only look at what calls of one function answer: the arguments of each
call, and an expression over its answer.

Of such a test only these expressions run in the worker, and they can change nothing there. A test
that does more runs as the program that it is, with a proxy in the program's place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import CodeType

from assay.checks import Check
from assay.judge.codec_types import BUILTINS, TYPES
from assay.judge.task_code import parsed
from assay.types import Task

HEAD = """import math
def CALL_(*given, **named): return given, named
def FAIL_(answer, *message): raise AssertionError(*message or [f"gives {show(answer)}"])
"""
RESERVED = ("ROWS_", "ANSWER_", "CALL_", "FAIL_")
NAMES = {*RESERVED, "math", "isinstance", *BUILTINS}
"""What an expression may name, beside attributes."""
ATTRIBUTES = frozenset(
    {name for kind in (str, float, list, *TYPES) for name in dir(kind) if name[0] != "_"}
    | {"ceil", "fabs", "floor", "inf", "isclose", "nan", "pi", "sqrt"}
) - {"format", "format_map"}  # these two read attributes that a text names
Table = tuple[str, list[str]]
"""The calls of one check, and what is right of each answer: Python of a list ROWS_, with the
arguments of each call and a function that asserts of an answer what the test asserts; and the line
of each assert, for messages."""


class NoTableError(ValueError):
    """Why a test is no table."""


def tables_of(task: Task) -> list[Table]:
    """A table for each of a task's checks. Raises NoTableError."""
    sources = [check.source for check in task.checks if isinstance(check, Check)]
    if len(sources) < len(task.checks) or task.language != "python":
        raise NoTableError("its tests are no asserts in Python")
    if any(name in source for source in sources for name in RESERVED):
        raise NoTableError("its tests use names of the judge's")
    bound, rest = bindings(parsed(task.setup).body)
    if rest:
        raise NoTableError("its setup does more than bind names")
    return [_table(source, task.entry_point, bound) for source in sources]


def bindings(body: Sequence[ast.stmt]) -> tuple[set[str], list[ast.stmt]]:
    """The names that code binds by statements that matter only where one of them is used, with `*`
    for those that its text does not show; and its other statements.
    """
    bound, rest = set[str](), list[ast.stmt]()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound.update(it.asname or it.name for it in names if it.name != "math")
            case ast.Assign() | ast.AnnAssign() if not _calls(node):
                bound.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
            case ast.Assert(ast.Constant(True)) | ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case _:
                rest.append(node)
    return bound, rest


def _calls(node: ast.AST) -> list[ast.Call]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]


def _table(source: str, entry_point: str, setup: set[str]) -> Table:
    function, body = entry_point, parsed(source).body
    bound, rest = bindings(body)
    match rest, [node for node in body if isinstance(node, ast.FunctionDef)]:
        case [ast.Expr(ast.Call(ast.Name(name), [argument], []))], [check] if (
            check.name == name and ast.unparse(argument) == entry_point and check.args.args
        ):
            function = check.args.args[0].arg
            more, rest = bindings(check.body)
            bound |= more
    data = source.encode("utf-8", "surrogatepass")
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]

    def text(node: ast.expr | ast.stmt) -> str:
        last, past = node.end_lineno or 0, node.end_col_offset or 0
        part = data[starts[node.lineno - 1] + node.col_offset : starts[last - 1] + past]
        return part.decode("utf-8", "surrogatepass")

    rows = ", ".join([_row(node, function, text) for node in rest])
    _require_harmless(f"ROWS_ = [{rows}]", bound | setup)
    return f"{HEAD}ROWS_ = [{rows}]", [text(node).partition("\n")[0] for node in rest]


def _row(node: ast.stmt, function: str, text: Callable[[ast.expr | ast.stmt], str]) -> str:
    """The row for an assert about one call of the function. Raises NoTableError."""
    if not isinstance(node, ast.Assert):
        raise NoTableError(f"`{text(node)}`")
    call = next(
        (text(it) for it in _calls(node.test) if getattr(it.func, "id", "") == function), ""
    )
    if text(node.test).count(call) != 1:
        raise NoTableError(f"`{text(node)}`")
    test, message = (text(part).replace(call, "ANSWER_") for part in (node.test, node.msg or node))
    failure = f"FAIL_(ANSWER_{f', {message}' if node.msg else ''})"
    return f"(CALL_{call.removeprefix(function)}, lambda ANSWER_: ({test}) or {failure})"


def _require_harmless(rows: str, bound: set[str]) -> None:
    """Raises NoTableError where rows name what could change the worker, or what is another thing in
    the test.
    """
    try:
        code = compile(rows, "<table>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoTableError(f"no expressions ({error})") from None
    functions = sum(isinstance(part, CodeType) for part in code.co_consts)
    if functions == 0 or functions > rows.count("lambda ANSWER_:"):
        raise NoTableError("it passes a function, or asserts nothing")
    used = _names(code)
    for name in used - NAMES:
        if name not in ATTRIBUTES or re.search(rf"(?<![.\w]){name}\b", rows):
            raise NoTableError(f"it uses {name}")
    for name in bound & {*used, "*"}:
        raise NoTableError(f"it defines {name}")


def _names(code: CodeType) -> set[str]:
    """The names that code uses, beside its own variables."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*map(_names, inner))
