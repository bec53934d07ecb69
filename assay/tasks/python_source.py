"""Reads the data sets' own Python: names, setup code, called functions. Not for a model's
programs.
"""

from __future__ import annotations

import ast

from assay.tasks.rows import Row


def parsed(source: str, row: Row, field: str) -> ast.Module:
    """The syntax tree of a field's code. Raises DataError when it does not parse."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise row.wrong(f"{field!r} is no valid Python ({error}); fix it") from error


def defines(tree: ast.Module, name: str) -> bool:
    """Whether `name` is a function or class at the top level."""
    return name in _definitions(tree)


def around(stub: str, row: Row, field: str, name: str) -> str:
    """What a stub has beside its top-level function `name`: imports, helpers and constants. A stub
    may end at the function's head, or with a comment. Raises DataError when it does not parse.
    """
    lines = [line for line in stub.split("\n") if line.split("#")[0].strip()]
    head = lines[-1] if lines and lines[-1].split("#")[0].rstrip().endswith(":") else ""
    body = f"\n{head[: len(head) - len(head.lstrip())]}    pass\n" if head else ""
    tree, lines = parsed(stub + body, row, field), stub.splitlines()
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - first + 1)
    rest = "\n".join(lines).strip("\n")
    return f"{rest}\n" if rest else ""


def called_function(tests: list[ast.Module], reference: ast.Module) -> str | None:
    """The one function of `reference` that the tests call; functions count before classes, the
    first call first.
    """
    definitions = _definitions(reference)
    names = [
        node.func.id
        for test in tests
        for node in ast.walk(test)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in definitions
    ]
    functions = [name for name in names if not isinstance(definitions[name], ast.ClassDef)]
    return next(iter(functions or names), None)


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}
