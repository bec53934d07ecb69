"""Decides from a task's text whether its code can change the worker that runs it.

A worker that took no such code may take another job, which saves a fork. The text decides, in a
process where none of it has run. The code may compute, call, loop, raise and bind its own names.
It has no classes, whose finalizers could run later, no generators that stay suspended, nothing that
sets an attribute, and no way to a namespace or a frame.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter, OrderedDict, defaultdict, deque
from importlib import import_module

from assay.judge.codec_types import EXCEPTIONS

NAMELESS = (
    ast.mod, ast.Lambda, ast.arguments, ast.Return, ast.Delete, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.NamedExpr, ast.For, ast.While, ast.If, ast.IfExp, ast.Raise, ast.Try,
    ast.Assert, ast.alias, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.Dict, ast.Set, ast.List, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.FormattedValue,
    ast.JoinedStr, ast.Constant, ast.Subscript, ast.Starred, ast.Slice, ast.expr_context,
    ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.type_ignore,
)  # fmt: skip
HARMLESS_KINDS = frozenset(
    kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, NAMELESS)
)
"""Nodes that are harmless whatever they hold; those that name something are looked at."""
MODULES = {
    "__future__": "annotations",
    "bisect": "bisect bisect_left bisect_right",
    "collections": "Counter OrderedDict defaultdict deque",
    "functools": "partial reduce",
    "heapq": "heapify heappop heappush nlargest nsmallest",
    "itertools": "accumulate chain combinations count islice permutations product repeat",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation",
    "typing": "Any Callable Dict FrozenSet Iterable List Optional Sequence Set Tuple Union",
}
"""Modules, each with the names that change no state of it. All names of WHOLE_MODULES are added."""
WHOLE_MODULES = ("math", "cmath")
IDENTITY = ("id", "eval", "exec", "assertIs", "assertIsNot", "is_", "is_not")
"""Names of functions that compare objects by identity, or may run what does."""
PROGRAM = ("candidate", "solution")
"""The program, as tests import it: its names are requests."""
KNOWN = {*MODULES, *WHOLE_MODULES, *PROGRAM}
DATA_TYPES = (
    list, tuple, dict, set, frozenset, str, bytes, int, float, complex, range, Counter,
    OrderedDict, defaultdict, deque,
)  # fmt: skip


def public(of: object) -> set[str]:
    """The public names of an object."""
    return {name for name in dir(of) if not name.startswith("_")}


ATTRIBUTES = frozenset(
    {name for names in MODULES.values() for name in names.split()}
    | {name for module in WHOLE_MODULES for name in public(import_module(module))}
    | {name for kind in DATA_TYPES for name in public(kind)}
) - {"format", "format_map"}  # these two read attributes that a text names
HARMLESS = (
    "abs all any ascii bin bool bytes chr complex dict divmod enumerate filter float frozenset hash"
    " hex int isinstance issubclass iter len list map max min next oct ord pow print range repr"
    " reversed round set slice sorted str sum tuple zip"
)
UNLISTED = frozenset(dir(builtins)).difference(HARMLESS.split(), EXCEPTIONS)
"""Names of Python's that code may neither use nor bind."""


def parsed(source: str) -> ast.Module:
    """The tree of a piece of code; an empty one where it cannot be parsed, and so never runs."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def looks_at_identity(source: str) -> bool:
    """Whether a piece of a task's code may compare objects by `is`, other than with a constant."""
    named = not source.isascii() or re.search(rf"\b({'|'.join(IDENTITY)}|is)\b", source)
    # most tests name nothing of it, and need not be parsed for it
    return bool(named) and any(map(_sees_identity, ast.walk(parsed(source))))


def _sees_identity(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in IDENTITY
        case ast.Compare(ops=ops, comparators=sides):
            return any(type(how) in (ast.Is, ast.IsNot) and type(side) is not ast.Constant
                       for how, side in zip(ops, sides, strict=True))  # fmt: skip
    return False


def leaves_no_trace(source: str) -> bool:
    """Whether a piece of a task's code leaves the worker as it was. One that cannot be parsed
    never runs.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return True
    except (RecursionError, MemoryError):
        return False
    return all(type(node) in HARMLESS_KINDS or _is_harmless(node) for node in ast.walk(tree))


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name, decorator_list=decorators):
            return not decorators and _may_be_bound(name)
        case ast.arg(arg=name):
            return _may_be_bound(name)
        case ast.Name(id="__name__", ctx=context):
            return isinstance(context, ast.Load)
        case ast.Name(id=name):
            return _may_be_bound(name)
        case ast.Attribute(attr=name, ctx=context):
            return name in ATTRIBUTES and isinstance(context, ast.Load)
        case ast.ExceptHandler(name=name):
            return name is None or _may_be_bound(name)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return all(map(_may_be_bound, names))
        case ast.Import(names=names):
            return all(one.name in KNOWN and _binds_well(one) for one in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            known = ATTRIBUTES if module not in PROGRAM else {one.name for one in names}
            listed = level == 0 and module in KNOWN
            return listed and all(one.name in known and _binds_well(one) for one in names)
    return False


def _binds_well(imported: ast.alias) -> bool:
    return _may_be_bound(imported.asname or imported.name)


def _may_be_bound(name: str) -> bool:
    return name not in UNLISTED and not name.startswith("__")
