"""Finds tests in which all that a program changes in place is compared with a literal by `==`, as
in `xs = [3, 1, 2]; f(xs); assert xs == [1, 2, 3]`.

Such a change is an answer like any other. The program has not read the literal, and nothing else
depends on the change. In `f(xs); assert g(2) == len(xs)` something does.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence

from assay.judge.task_code import nodes_of

PLAIN = (
    ast.Module, ast.Assign, ast.Expr, ast.Assert, ast.Compare, ast.BoolOp, ast.Call, ast.keyword,
    ast.Attribute, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp,
    ast.Pass, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.arguments, ast.Await, ast.With, ast.AsyncWith, ast.withitem, ast.For, ast.Try,
    ast.ExceptHandler, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop,
)  # fmt: skip
"""All that such a test consists of. Anything else may lead a change anywhere."""
LITERAL = (
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.unaryop,
    ast.expr_context,
)  # fmt: skip
NAMESPACES = {"globals", "locals", "vars", "eval", "exec", "dir", "*"}


def only_compares_arguments(sources: Sequence[str]) -> bool:
    """Whether these checks, which share their names, read what they pass in this way alone."""
    nodes = [node for source in sources for node in nodes_of(source)]
    if not nodes or not all(isinstance(node, PLAIN) for node in nodes):
        return False
    names = _Names(nodes)
    loads = (it for it in nodes if isinstance(it, ast.Name | ast.Attribute))
    return (
        not names.all & NAMESPACES
        and all(names.passes_what_is_new(node) for node in nodes if isinstance(node, ast.Call))
        and all(id(load) in names.harmless for load in loads if isinstance(load.ctx, ast.Load))
    )


class _Names:
    """What the names of a test are bound to, and which of its reads show no change."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._times_bound = Counter(_bindings(nodes))
        self.all = {*self._times_bound, *(it.id for it in nodes if isinstance(it, ast.Name))}
        bound = [
            (node.targets[0].id, node.value)
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if len(node.targets) == 1 and self._times_bound[node.targets[0].id] == 1
        ]
        self._data = {name for name, value in bound if is_literal(value)}
        self._answers = set[str]()
        self._answers = {name for name, value in bound if self._asks_program(value)}
        self._modules = {*_bindings([it for it in nodes if isinstance(it, ast.alias)])}
        self._constants = {name for node in nodes for name in self._loop_constants(node)}
        in_try = {id(it) for node in nodes if isinstance(node, ast.Try) for it in ast.walk(node)}
        self.harmless = {
            id(load)
            for node in nodes
            for load in self._harmless(node)
            if not (isinstance(node, ast.Assert) and id(node) in in_try)
        }
        """Names and attributes that are read, by id. No branch of the test's depends on these."""

    def passes_what_is_new(self, call: ast.Call) -> bool:
        """Whether a call gets nothing of an object that the test reads later, as `d.get(1)` is."""
        inner = (it for part in _arguments(call) for it in ast.walk(part))
        return all(
            self._asks_program(it) or _root(it.func) in self._modules
            for it in inner
            if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute)
        )

    def _harmless(self, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case ast.Call(func=function):
                yield from self._without_data(function)
                passed = self._constants | (self._data if self._asks_program(node) else set())
                for value in _arguments(node):
                    if isinstance(value, ast.Name) and value.id in passed:
                        yield value
            case ast.Await(value=value) | ast.withitem(context_expr=value):
                yield from self._without_data(value)
            case ast.ExceptHandler(type=ast.Name() | ast.Attribute() as kind):
                yield from self._without_data(kind)
            case ast.Assert(test=test):
                is_all = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
                for part in test.values if is_all else [test]:  # type: ignore[attr-defined]
                    yield from _compared_with_literal(part)

    def _without_data(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a dotted name that begins with no name of data."""
        if _root(node) not in self._data:
            while isinstance(node, ast.Attribute):
                yield node
                node = node.value
            yield node

    def _asks_program(self, node: ast.AST) -> bool:
        """Whether it is a call that gives its arguments to the program and to nobody else."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return not (self._times_bound[name] or hasattr(builtins, name))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                return name in self._answers
            case ast.Call(func=ast.Attribute(value=call)):
                return self._asks_program(call)
        return False

    def _loop_constants(self, node: ast.AST) -> Iterator[str]:
        """The name that a loop binds to values that cannot change."""
        match node:
            case ast.For(
                target=ast.Name(id=name), iter=ast.List(elts=values) | ast.Tuple(elts=values)
            ):
                if self._times_bound[name] == 1 and all(
                    isinstance(it, ast.Constant) for it in values
                ):
                    yield name


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is data that stands there, without a name."""
    return all(isinstance(part, LITERAL) for part in ast.walk(node))


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _root(node: ast.AST) -> str:
    """The name that a dotted name begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _compared_with_literal(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            for name, other in ((left, right), (right, left)):
                if isinstance(name, ast.Name) and is_literal(other):
                    yield name


def _bindings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Each name, as often as the test binds it."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name
