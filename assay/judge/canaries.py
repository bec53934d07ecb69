"""Canaries: copies of a repository's tests with their assertions turned round. Where a test and its
canary pass, whoever reports that lies.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import NamedTuple

OPPOSITES = {
    "Equal": "NotEqual", "True": "False", "In": "NotIn", "Is": "IsNot", "IsNone": "IsNotNone",
    "IsInstance": "NotIsInstance", "AlmostEqual": "NotAlmostEqual", "Greater": "LessEqual",
    "Less": "GreaterEqual", "Regex": "NotRegex",
}  # fmt: skip
"""What unittest's assertions are called after `assert`, by pairs."""
TURNED = {f"assert{a}": f"assert{b}" for pair in OPPOSITES.items() for a, b in (pair, pair[::-1])}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Canary(NamedTuple):
    """A test that must fail."""

    original: str
    """The id of the test."""
    id: str
    source: str
    """What is to stand at the end of the test's file."""


class Turner(ast.NodeTransformer):
    """Turns each assertion round."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """`assert not x` for `assert x`."""
        return ast.Assert(ast.UnaryOp(ast.Not(), node.test), None)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`self.assertNotEqual` for `self.assertEqual`."""
        self.generic_visit(node)
        node.attr = TURNED.get(node.attr, node.attr)
        return node


def canaries(
    tests: Sequence[str], sources: dict[str, str], most: int, random: Random
) -> list[Canary]:
    """Up to so many, of the first of these ids that can have one. sources: of their files, by path;
    of others there are none.
    """
    trees = {path: parsed(source) for path, source in sources.items()}
    candidates = (
        canary_of(test, trees[path], f"{random.getrandbits(40):x}")
        for test in tests
        if (path := test.partition("::")[0]) in trees
    )
    return list(islice(filter(None, candidates), most))


def parsed(source: str) -> ast.Module:
    """The tree of a file; empty where it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def canary_of(test: str, tree: ast.Module, word: str) -> Canary | None:
    """The canary of one test, with names that end in `word`; None where its source has no assertion
    that can be turned round and is always reached.
    """
    path, *scopes, last = test.split("::")
    name, bracket, parameters = last.partition("[")
    body = members(tree, scopes[0]) if scopes else tree.body
    functions = [node for node in body if isinstance(node, Function) and node.name == name]
    if len(scopes) > 1 or not functions or not is_turned(functions[-1]):
        return None
    function = Turner().visit(copy.deepcopy(functions[-1]))
    function.name = f"test_{word}" if name.startswith("test") else f"{name}_{word}"
    id = "::".join(
        [path, *(f"{scope}{word}" for scope in scopes), function.name + bracket + parameters]
    )
    if scopes:
        base = ast.Name(scopes[0])
        function = ast.ClassDef(f"{scopes[0]}{word}", [base], [], [function], [])
    return Canary(test, id, f"\n\n{ast.unparse(ast.fix_missing_locations(function))}\n")


def members(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a class and of those in the file that it inherits from, its own last."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    statements, names = list[ast.stmt](), [name]
    for inherited in names:
        if ancestor := classes.pop(inherited, None):
            statements[:0] = ancestor.body
            names += [base.id for base in ancestor.bases if isinstance(base, ast.Name)]
    return statements


def is_turned(function: Function) -> bool:
    """Whether a statement of its own asserts what can be turned round, and none leaves before, and
    the test is not one that is expected to fail.
    """
    if any(
        "xfail" in ast.unparse(decorator) or "expectedFailure" in ast.unparse(decorator)
        for decorator in function.decorator_list
    ):
        return False
    for statement in function.body:
        match statement:
            case ast.Assert():
                return True
            case ast.Expr(ast.Call(ast.Attribute(attr=name))) if name in TURNED:
                return True
        if any(isinstance(node, ast.Return | ast.Yield) for node in ast.walk(statement)):
            return False
    return False
