"""Reads a task's code: its tree, and what the code may do."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from assay.judge.codec_types import BUILTINS, TYPES

IDENTITY = ("id", "eval", "exec", "assertIs", "assertIsNot", "is_", "is_not")
"""Names of functions that compare objects by identity, or may run what does."""
FUNCTIONS = {*BUILTINS, "enumerate", "filter", "isinstance", "map", "reversed", "zip"} - {"type"}
"""Of Python's own, those that harmless code may name."""
MODULES = {
    "math": "acos asin atan atan2 ceil comb cos degrees dist e exp fabs factorial floor fmod fsum"
    " gcd hypot inf isclose isfinite isinf isnan isqrt lcm log log10 log2 nan perm pi pow prod"
    " radians sin sqrt tan tau trunc",
    "collections": "Counter OrderedDict defaultdict deque",
    "typing": "Any Callable Dict Iterable Iterator List Optional Sequence Set Tuple Union",
}
"""Modules that it may import, and what it may use of each."""
ATTRIBUTES = frozenset(
    {name for kind in (str, float, list, *TYPES) for name in dir(kind) if name[0] != "_"}
    | {name for names in MODULES.values() for name in names.split()}
) - {"format", "format_map"}  # these two read attributes that a text names
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
REFUSED = (
    ast.AsyncFunctionDef, ast.ClassDef, ast.Match,
    ast.Yield, ast.YieldFrom,  # what is left of a generator would run in another job
)  # fmt: skip


def parsed(source: str) -> ast.Module:
    """The tree of a piece of code; an empty one where it cannot be parsed, and so never runs."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def looks_at_identity(source: str) -> bool:
    """Whether a piece of a task's code may compare objects by `is`, other than with a constant."""
    return any(map(_sees_identity, ast.walk(parsed(source))))


def only_binds(source: str) -> bool:
    """Whether code does nothing but bind names, and so matters only to code that uses them."""
    return all(map(_binds, parsed(source).body))


def _binds(node: ast.stmt) -> bool:
    match node:
        case ast.Assign() | ast.AnnAssign():
            return not any(isinstance(part, ast.Call) for part in ast.walk(node))
        case ast.Expr(ast.Constant()):
            return True
    return isinstance(node, (*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Pass))


def is_harmless(sources: Sequence[str]) -> bool:
    """Whether a task's code can change nothing in the process that runs it, so that another's may
    run there next.
    """
    trees = [parsed(source) for source in sources if source]
    return all(tree.body and not any(map(_may_harm, ast.walk(tree))) for tree in trees)


def only_asserts(source: str, function: str) -> bool:
    """Whether code calls a function only in asserts, once in each, calls none of its answers, and
    uses no variables and nothing else of the program.
    """
    nodes = [*ast.walk(tree := parsed(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    bound = {it for node in nodes if not isinstance(node, ast.Name) for it in _identifiers(node)}
    asserts = [node for node in nodes if isinstance(node, ast.Assert)]
    single = all(len(_calls(node.test, function)) < 2 for node in asserts)
    counted = sum(len(_calls(node, function)) for node in asserts)
    in_asserts = counted == len(_calls(tree, function))
    return single and in_asserts and used <= bound | FUNCTIONS | {function}


def _calls(tree: ast.AST, function: str) -> list[ast.Call]:
    """The calls in code of a function, which HumanEval names `candidate`, or of any answer."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = (function, "candidate")
    return [
        it for it in calls if isinstance(it.func, ast.Call) or getattr(it.func, "id", "") in names
    ]


def _may_harm(node: ast.AST) -> bool:
    if any(name.startswith("__") for name in _identifiers(node)):
        return True
    match node:
        case ast.Import(names):
            return any(it.name not in MODULES for it in names)
        case ast.ImportFrom(module=module, names=names):
            harmless = MODULES.get(module or "", "").split()
            return any(it.name not in harmless for it in names)
        case ast.Constant(str(text)):
            return ">>> " in text  # it may be run, as a doctest
        case ast.Attribute(attr=name, ctx=context):
            return name not in ATTRIBUTES or not isinstance(context, ast.Load)
        case ast.Name(id=name):
            return hasattr(builtins, name) and name not in FUNCTIONS
    return isinstance(node, REFUSED)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """What a node names."""
    if not isinstance(node, ast.Constant):
        for _, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            yield from (part for part in parts if isinstance(part, str))


def _sees_identity(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in IDENTITY
        case ast.Compare(ops=ops, comparators=sides):
            return any(type(how) in (ast.Is, ast.IsNot) and type(side) is not ast.Constant
                       for how, side in zip(ops, sides, strict=True))  # fmt: skip
    return False
