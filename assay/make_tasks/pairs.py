"""Bugs of two places: two operators' edits, in one function, or in a helper and its caller."""

import ast
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise

from assay.make_tasks.edits import Change, SourceFile
from assay.make_tasks.operators import sites
from assay.make_tasks.value_types import Function

Changes = Iterator[Change]
PairOperator = Callable[[SourceFile, ast.AST], Changes]
PAIR_OPERATORS: dict[str, PairOperator] = {}
"""By the name that the table of `assay make-tasks` shows."""


def pair_operator(function: PairOperator) -> PairOperator:
    """Register an operator of two places: it gets a source and one of its nodes."""
    PAIR_OPERATORS[function.__name__] = function
    return function


def changes(source: SourceFile) -> Iterator[tuple[str, Change]]:
    """All bugs of a file with the name of their operator, in the order of the tree."""
    for name, edit in sites(source):
        yield name, (edit,)
    for node in ast.walk(source.tree):
        for name, function in PAIR_OPERATORS.items():
            for change in function(source, node):
                yield name, change


@pair_operator
def two_places(source: SourceFile, node: ast.AST) -> Changes:
    """Two edits that follow each other in a function, on different lines."""
    if isinstance(node, Function):
        edits = sorted(
            (edit for _, edit in sites(source, node)), key=lambda edit: (edit.start, edit.new)
        )
        last_of_line = {source.data.count(b"\n", 0, edit.start): edit for edit in edits}
        pairs = pairwise(last_of_line.values())
        yield from (pair for pair in pairs if b"\n" in source.data[pair[0].end : pair[1].start])


@pair_operator
def helper_and_caller(source: SourceFile, node: ast.AST) -> Changes:
    """An edit of a function, or method, and one of a function that calls it."""
    if not isinstance(node, ast.Module | ast.ClassDef):
        return
    functions = {part.name: part for part in node.body if isinstance(part, Function)}
    edits = {name: [edit for _, edit in sites(source, part)] for name, part in functions.items()}
    for caller, part in functions.items():
        names = {_callee(call, isinstance(node, ast.ClassDef)) for call in ast.walk(part)}
        for helper in (name for name in functions if name in names - {caller}):
            longer, shorter = sorted((edits[helper], edits[caller]), key=len, reverse=True)
            for edit, other in zip(longer, cycle(shorter), strict=False):
                yield (edit, other) if edit.start < other.start else (other, edit)


def _callee(node: ast.AST, in_class: bool) -> str:
    """The name of the function of a file, or method of `self`, that a node calls."""
    function = node.func if isinstance(node, ast.Call) else None
    if in_class:
        owner = function.value if isinstance(function, ast.Attribute) else None
        is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
        return function.attr if is_own and isinstance(function, ast.Attribute) else ""
    return function.id if isinstance(function, ast.Name) else ""
