"""Reads the data sets' own Python: names, setup code, called functions. Not for a model's
programs.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from assay.lines import source_lines
from assay.syntax_trees import UNPARSABLE, syntax_tree
from assay.tasks.rows import Row

DOES_NOTHING = ast.Name, ast.Attribute, ast.Tuple, ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp
"""Expressions that no program has as statements, but prose that parses: `Hint`, `a / b`."""


def parsed(source: str, row: Row, field: str) -> ast.Module:
    """The syntax tree of a field's code. Raises DataError when it does not parse."""
    return _tree(syntax_tree, source, row, field)


def _tree(parse: Callable[[str], ast.Module], source: str, row: Row, field: str) -> ast.Module:
    try:
        return parse(source)
    except UNPARSABLE as error:
        raise row.wrong(f"{field!r} is no valid Python ({error}); fix it") from error


def defines(tree: ast.Module, name: str) -> bool:
    """Whether `name` is a function or class at the top level."""
    return name in _definitions(tree)


def around(stub: str, row: Row, field: str, name: str) -> str:
    """What a stub has beside its top-level function `name`: imports, helpers and constants. Raises
    DataError when it does not parse.
    """
    tree, lines = _tree(parsed_stub, stub, row, field), source_lines(stub)
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - first + 1)
    rest = "\n".join(lines).strip("\n")
    return f"{rest}\n" if rest else ""


def parsed_stub(stub: str) -> ast.Module:
    """The syntax tree of a stub, which may end at a head, as that of a function or loop, or with a
    comment below it. Raises as ast.parse.
    """
    try:
        return syntax_tree(stub)
    except SyntaxError:
        lines = [line for line in source_lines(stub) if line.split("#")[0].strip()]
        indent = lines[-1][: -len(lines[-1].lstrip())] if lines else ""
        return syntax_tree(f"{stub}\n{indent}    pass\n")


def is_stub(text: str, name: str) -> bool:
    """Whether a text is code that a completion continues, which begins or has the function `name`.
    It is not where prose stands around the code, even prose that happens to parse: `Task: add`.
    """
    try:
        tree = parsed_stub(text)
    except UNPARSABLE:
        return False
    is_prose = any(
        (isinstance(node, ast.Expr) and isinstance(node.value, DOES_NOTHING))
        or (isinstance(node, ast.AnnAssign) and node.value is None)
        for node in tree.body
    )
    return defines(tree, name) and not is_prose


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


OPENS = {"*", "exec", "globals", "setattr", "vars"}
"""By these code may define any name."""


def named_instead(name: str, reference: ast.Module) -> str:
    """The functions and classes of a reference that lacks the name; empty where it may have it."""
    names = _names(reference)
    is_open = name in names or bool(names & OPENS)
    return "" if is_open else ", ".join(map(repr, _definitions(reference)))


def undefined_function(tests: list[ast.Module]) -> str | None:
    """The first function that the tests call and do not have themselves; None where they may have
    any.
    """
    defined = {name for test in tests for name in _names(test)} | {*dir(builtins)}
    if "*" in defined:
        return None
    calls = (node for test in tests for node in ast.walk(test) if isinstance(node, ast.Call))
    names = (call.func.id for call in calls if isinstance(call.func, ast.Name))
    return next((name for name in names if name not in defined), None)


def _names(tree: ast.Module) -> set[str]:
    """The names that code defines, assigns or imports."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = list(ast.walk(tree))
    names = {node.name for node in nodes if isinstance(node, kinds)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)
              and isinstance(node.ctx, ast.Store)}  # fmt: skip
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    names |= {name for node in nodes if isinstance(node, ast.MatchAs | ast.MatchStar)
              and (name := node.name)}  # fmt: skip
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and node.id in OPENS}
    aliases = (node for node in nodes if isinstance(node, ast.alias))
    return names | {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}
