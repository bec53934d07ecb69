"""Canaries: the files of a repository's tests with an assertion of each test turned round. Where a
test passes and its canary does not fail, whoever reports that lies, or answers to what is expected.

Test and canary have one file, one name and one id: nothing but the assertion tells them apart.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

OPPOSITES = {
    "True": "False", "In": "NotIn", "Is": "IsNot", "IsNone": "IsNotNone",
    "IsInstance": "NotIsInstance", "Greater": "LessEqual", "Less": "GreaterEqual",
    "Regex": "NotRegex", "Equal": "NotEqual", "AlmostEqual": "NotAlmostEqual",
}  # fmt: skip
"""What unittest's assertions are called after `assert`, by pairs."""
TURNED = {f"assert{a}": f"assert{b}" for pair in OPPOSITES.items() for a, b in (pair, pair[::-1])}
EQUAL = re.compile(r"assert(?!Not)\w*Equals?(?<!sEqual)(?<!rEqual)")
"""Those that compare with an expected value: not `assertLessEqual` and `assertGreaterEqual`."""
RAISES = {"raises", "assertRaises"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
OTHER = """

def {name}(value):
    kind = type(value)
    if kind in (list, tuple):
        return value + kind(["{word}"])
    if kind in (set, frozenset):
        return value | {{"{word}"}}
    if kind in (str, bytes):
        return value + ("{word}" if kind is str else b"{word}")
    if kind is dict:
        return {{**value, "{word}": 1}}
    if kind in (int, float) and value + {number} != value:
        return value + {number}
    return not value if kind is bool else "{word}"
"""
"""What stands at the end of a file: another value of a class, which no right answer equals."""


class Canary(NamedTuple):
    """A test that must fail."""

    original: str
    """The id of the test."""
    id: str
    """What the canary is called where its test is called by its id."""


class Expectation:
    """Makes other values than those that are expected."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.name = f"_{self._word()}"

    @property
    def source(self) -> str:
        """The function of which the turned assertions make use."""
        return OTHER.format(name=self.name, word=self._word(), number=self._number())

    def _word(self) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=8))

    def _number(self) -> int:
        return self._random.randrange(10**6, 10**7)

    def literal(self, node: ast.expr) -> ast.expr | None:
        """Another literal of the same class; None where there is no literal, or no other."""
        match node:
            case ast.Constant(bool() as value):
                return ast.Constant(not value)
            case ast.Constant(int() | float() as value) if value + 1 != value:
                return ast.Constant(value + self._number())
            case ast.Constant(str() as value):
                return ast.Constant(value + self._word())
            case ast.Constant(bytes() as value):
                return ast.Constant(value + self._word().encode())
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                other = self.literal(operand)
                return other and ast.UnaryOp(node.op, other)
            case ast.List(elts=[*elements]) | ast.Tuple(elts=[*elements]) if is_plain(node):
                return type(node)([*elements, ast.Constant(self._word())], ast.Load())
            case ast.Dict(keys=[*keys], values=[*values]) if is_plain(node):
                word = ast.Constant(self._word())
                return ast.Dict([*keys, word], [*values, ast.Constant(1)])
        return None

    def pair(self, left: ast.expr, right: ast.expr, arguments: set[str]) -> tuple[str, list[str]]:
        """Statements before a comparison, and its sides, of which one is another."""
        sides = [left, right]
        order = sorted((1, 0), key=lambda at: (not is_plain(sides[at]), has_call(sides[at])))
        at = order[0]
        side, facing = sides[at], sides[1 - at]
        used = {it.id for it in ast.walk(facing) if isinstance(it, ast.Name)}
        texts, before = [ast.unparse(it) for it in sides], ""
        if other := self.literal(side):
            texts[at] = ast.unparse(other)
        elif isinstance(side, ast.Name) and side.id in arguments - used:
            before = f"{side.id} = {self.name}({side.id}); "
        else:
            texts[at] = f"{self.name}({texts[at]})"
        return before, texts

    def turned(self, statement: ast.stmt, arguments: set[str]) -> str:
        """The source of an assertion that fails where this one holds; empty for no assertion."""
        match statement:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                before, (first, second) = self.pair(left, right, arguments)
                return f"{before}assert ({first}) == ({second})"
            case ast.Assert(test=test):
                return f"assert not ({ast.unparse(test)})"
            case ast.Expr(ast.Call(ast.Attribute(attr=name), [left, right, *_]) as call) if (
                EQUAL.fullmatch(name)
            ):
                before, (first, second) = self.pair(left, right, arguments)
                call = copy.deepcopy(call)
                call.args[:2] = [ast.Name(f"({first})"), ast.Name(f"({second})")]
                return before + ast.unparse(call)
            case ast.Expr(ast.Call(ast.Attribute(value=value, attr=name)) as call) if (
                name in TURNED
            ):
                call = copy.deepcopy(call)
                call.func = ast.Attribute(value, TURNED[name], ast.Load())
                return ast.unparse(call)
        return ""


def is_plain(node: ast.expr) -> bool:
    """Whether an expression is made of literals."""
    parts = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load, ast.UnaryOp, ast.USub)
    return all(isinstance(part, parts) for part in ast.walk(node))


def has_call(node: ast.expr) -> bool:
    """Whether an expression calls something."""
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def turned_file(source: str, tests: Sequence[str], random: Random) -> tuple[str, list[str]]:
    """The text of a file in which some of these tests must fail, and the ids of those: they have an
    assertion that can be turned round and is always reached.
    """
    tree, other = parsed(source), Expectation(random)
    edits, turned = dict[int, tuple[ast.stmt, str]](), list[str]()
    for test in tests:
        if (function := function_of(test, tree)) and (edit := edit_of(function, other)):
            edits[edit[0].lineno] = edit
            turned.append(test)
    lines = source.encode().splitlines(keepends=True)
    for statement, text in sorted(edits.values(), key=lambda edit: -edit[0].lineno):
        first, last = statement.lineno - 1, (statement.end_lineno or 0) - 1
        head = lines[first][: statement.col_offset]
        tail = lines[last][statement.end_col_offset :]
        lines[first : last + 1] = [head + text.encode() + tail]
    text = b"".join(lines).decode() + other.source
    return (text, turned) if turned and parsed(text).body else (source, [])


def parsed(source: str) -> ast.Module:
    """The tree of a file; empty where it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def function_of(test: str, tree: ast.Module) -> Function | None:
    """The function of one test; None where it is none of the file's."""
    _, *scopes, last = test.split("::")
    body = members(tree, scopes[0]) if scopes else tree.body
    name = last.partition("[")[0]
    functions = [node for node in body if isinstance(node, Function) and node.name == name]
    return functions[-1] if functions and len(scopes) < 2 else None


def members(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a class and of those in the file that it inherits from, its own last."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    statements, names = list[ast.stmt](), [name]
    for inherited in names:
        if ancestor := classes.pop(inherited, None):
            statements[:0] = ancestor.body
            names += [base.id for base in ancestor.bases if isinstance(base, ast.Name)]
    return statements


def edit_of(function: Function, other: Expectation) -> tuple[ast.stmt, str] | None:
    """The first statement of its own that asserts what can be turned round, and what is to stand in
    its place. None where one leaves before, or the test is expected to fail.
    """
    if any(
        "xfail" in ast.unparse(decorator) or "expectedFailure" in ast.unparse(decorator)
        for decorator in function.decorator_list
    ):
        return None
    arguments = {it.arg for it in function.args.args}
    for statement in function.body:
        for place, text in turns(statement, other, arguments):
            return place, text
        if any(isinstance(node, ast.Return | ast.Yield) for node in ast.walk(statement)):
            return None
    return None


def turns(
    statement: ast.stmt, other: Expectation, arguments: set[str]
) -> Iterator[tuple[ast.stmt, str]]:
    """How an assertion is turned round: one that compares, or one that expects an exception."""
    if text := other.turned(statement, arguments):
        yield statement, text
    elif isinstance(statement, ast.With) and len(statement.items) == 1:
        match statement.items[0].context_expr:
            case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name), [_, *_]) if name in RAISES:
                changed = copy.deepcopy(statement)
                call = changed.items[0].context_expr
                assert isinstance(call, ast.Call)
                call.args[0] = ast.parse("type('Error', (Exception,), {})", mode="eval").body
                indent = "\n" + " " * statement.col_offset
                yield statement, ast.unparse(changed).replace("\n", indent)
