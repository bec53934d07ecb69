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
from itertools import chain

from assay.judge.task_code import nodes_of

PLAIN = (
    ast.Module, ast.Assign, ast.Expr, ast.Assert, ast.Compare, ast.BoolOp, ast.Call, ast.keyword,
    ast.Attribute, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp,
    ast.Pass, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.arguments, ast.Await, ast.With, ast.AsyncWith, ast.withitem, ast.For, ast.expr_context,
    ast.boolop, ast.unaryop, ast.cmpop,
)  # fmt: skip
"""All that such a test consists of. Anything else may lead a change anywhere."""
LITERAL = (
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.unaryop,
    ast.expr_context,
)  # fmt: skip
NAMESPACES = {"globals", "locals", "vars", "eval", "exec", "dir", "*"}


def only_compares_arguments(sources: Sequence[str]) -> bool:
    """Whether these checks, which share their names, read what they pass in this way alone."""
    trees = [nodes_of(source) for source in sources]
    nodes = [*chain.from_iterable(trees)]
    if not all(trees) or not all(map(_is_plain, nodes)):
        return False
    names = _Names(nodes)
    loads = (it for it in nodes if isinstance(it, ast.Name | ast.Attribute))
    return (
        not names.all & NAMESPACES
        and all(names.is_compared(it) for it in nodes if isinstance(it, ast.Call))
        and all(id(load) in names.harmless for load in loads if isinstance(load.ctx, ast.Load))
    )


def _is_plain(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(decorator_list=[_, *_]) | ast.AsyncFunctionDef(decorator_list=[_, *_]):
            return False  # it may expect the function to fail
        case ast.For(iter=iterable):
            return is_literal(iterable)  # else its body may never run
        case ast.Constant(value=str(text)):
            return ">>>" not in text
    return isinstance(node, PLAIN)


class _Names:
    """What the names of a test are bound to, and which of its reads show no change."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        bindings = Counter(_bindings(nodes))
        self._bound = {*bindings}
        self.all = {*self._bound, *(it.id for it in nodes if isinstance(it, ast.Name))}
        once = {name for name, times in bindings.items() if times == 1}
        self._data = once & {*_assigned_literals(nodes)}
        self._constants = once & {*_loop_constants(nodes)}
        self._modules = once & {*_bindings([it for it in nodes if isinstance(it, ast.alias)])}
        compared = [*_compared(nodes)]
        self._compared = {id(node) for node in compared}
        self.harmless = {id(it) for it in compared if isinstance(it, ast.Name)}
        """Names and attributes that are read, by id. No branch of the test's depends on these."""
        self.harmless |= {id(load) for node in nodes for load in self._harmless(node)}

    def is_compared(self, call: ast.Call) -> bool:
        """Whether a method's answer is dropped or compared with a literal: it may be the test's own
        method, of data that the program answered and can change.
        """
        is_method = isinstance(call.func, ast.Attribute) and _root(call.func) not in self._modules
        return not is_method or id(call) in self._compared

    def _harmless(self, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case ast.Call(func=function):
                yield from self._without_data(function)
                passed = self._constants | (self._data if self._gets_data(node) else set())
                for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    if isinstance(value, ast.Name) and value.id in passed:
                        yield value
            case ast.Await(value=value) | ast.withitem(context_expr=value):
                yield from self._without_data(value)
            case ast.Assert(test=test):
                for value in _beside_literals(test):
                    yield from self._without_data(value)

    def _without_data(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a dotted name that begins with no name of data."""
        if _root(node) not in self._data:
            while isinstance(node, ast.Attribute):
                yield node
                node = node.value
            yield node

    def _gets_data(self, call: ast.Call) -> bool:
        """Whether a call gives its arguments to the program and to nobody else: of a function or
        class of the program's, or of a method of what that has just answered.
        """
        match call.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Call(func=ast.Name(id=name))):
                return not (name in self._bound or hasattr(builtins, name))
        return False


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is data that stands there, without a name."""
    return all(isinstance(part, LITERAL) for part in ast.walk(node))


def _compared(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What a statement drops, and what an assert at the top compares with a literal: a failure of
    any other assert may be swallowed.
    """
    for node in nodes:
        if isinstance(node, ast.Expr):
            yield node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(node, ast.Module):
            for statement in node.body:
                if isinstance(statement, ast.Assert):
                    yield from _beside_literals(statement.test)


def _beside_literals(test: ast.expr) -> Iterator[ast.expr]:
    """What an assert compares with a literal, by itself or beside other conditions that hold."""
    is_all = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
    for part in test.values if is_all else [test]:  # type: ignore[attr-defined]
        match part:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
                yield from [left] if is_literal(right) else []
                yield from [right] if is_literal(left) else []


def _assigned_literals(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_literal(value):
                yield name


def _loop_constants(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names that loops bind to values that cannot change."""
    for node in nodes:
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.List() | ast.Tuple() as values):
                if all(isinstance(value, ast.Constant) for value in values.elts):
                    yield name


def _root(node: ast.AST) -> str:
    """The name that a dotted name begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
