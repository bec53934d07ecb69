"""Reads a task's code: its tree, and whether it looks at the identity of objects."""

from __future__ import annotations

import ast

IDENTITY = ("id", "eval", "exec", "assertIs", "assertIsNot", "is_", "is_not")
"""Names of functions that compare objects by identity, or may run what does."""


def parsed(source: str) -> ast.Module:
    """The tree of a piece of code; an empty one where it cannot be parsed, and so never runs."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def looks_at_identity(source: str) -> bool:
    """Whether a piece of a task's code may compare objects by `is`, other than with a constant."""
    return any(map(_sees_identity, ast.walk(parsed(source))))


def _sees_identity(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in IDENTITY
        case ast.Compare(ops=ops, comparators=sides):
            return any(type(how) in (ast.Is, ast.IsNot) and type(side) is not ast.Constant
                       for how, side in zip(ops, sides, strict=True))  # fmt: skip
    return False
