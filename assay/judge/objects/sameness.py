"""Has each `is` of a test go through a function, so that one object of the program's is one object
of the test's, however often it was answered, and so that a pass which rests on it is noticed.
"""

from __future__ import annotations

import ast
import re

from assay.judge.codec_types import SHARED
from assay.judge.objects import remote
from assay.judge.objects.remote import is_remote, ref_of
from assay.judge.requests import RemoteProgram

SAME = "<is>"
"""What a test's code calls in place of `is`: no name of Python's."""
IS = re.compile(r"is\b(?<!\wis)")
"""`\\bis\\b`, which is sought three times as fast from its letters on."""


class IsCalls(ast.NodeTransformer):
    """Turns `a is b` into a call, but where one of the two is a literal."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a is not b` becomes `not same(a, b)`."""
        self.generic_visit(node)
        if not is_asked(node):
            return node
        function = ast.copy_location(ast.Name(SAME, ast.Load()), node)
        call = ast.copy_location(ast.Call(function, [node.left, *node.comparators], []), node)
        if isinstance(node.ops[0], ast.Is):
            return call
        return ast.copy_location(ast.UnaryOp(ast.Not(), call), node)


def is_asked(node: ast.Compare) -> bool:
    """Whether a comparison is one by `is`, of what is no literal, and nothing else."""
    sides = [node.left, *node.comparators]
    return (
        len(node.ops) == 1
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
        and not any(isinstance(side, ast.Constant) for side in sides)
    )


def with_identity_asked(source: str | ast.Module) -> str | ast.Module:
    """Source in which `is` calls SAME. Raises SyntaxError."""
    if isinstance(source, str):
        if not IS.search(source):
            return source
        source = ast.parse(source)
    return IsCalls().visit(source)  # type: ignore[no-any-return]


class Identity:
    """What a test knows of the identity of a program's objects."""

    def __init__(self, connection: RemoteProgram) -> None:
        self._connection = connection
        self._first: dict[int | str, object] = {}
        """By number: the first of the test's objects for it of which the test has asked the `id`.
        It lives as long as the test, so that no later one has its number."""
        self._kept: list[object] = []

    def same(self, first: object, other: object) -> bool:
        """As `first is other`."""
        if first is not other and not remote.stand_for_one(first, other):
            if type(first) is type(other) and type(first) in SHARED and first == other:
                self._connection.forgeable = True  # the program says that it is a copy
            return False
        answered_twice = first is not other or self._connection.job["identity"]
        by_name = isinstance(first, type) or remote.is_named(first, other)
        says = is_remote(first) and answered_twice and not by_name
        self._connection.forgeable |= says or self._connection.is_shared(first)
        return True

    def id(self, value: object) -> int:
        """As `id`."""
        if not is_remote(value) or isinstance(value, type):
            self._kept.append(value)
            self._connection.forgeable |= self._connection.is_shared(value)
            return id(value)
        first = self._first.setdefault(ref_of(value).target, value)
        self._connection.forgeable |= first is not value
        return id(first)
