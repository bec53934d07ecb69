"""Reads a task's code: its tree, and what the code may do."""

from __future__ import annotations

import ast
import builtins
import copy
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.judge.codec_types import BUILTINS, TYPES
from assay.syntax_trees import UNPARSABLE, read_text, syntax_tree

if TYPE_CHECKING:  # zygotes import this
    from assay.types import Task

IDENTITY = ("eval", "exec", "assertIs", "assertIsNot", "is_", "is_not")
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
WORD = re.compile(r"[^\W\d]\w*")
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
NAMELESS = frozenset((
    ast.Load, ast.Store, ast.Call, ast.Compare, ast.Assert, ast.Expr, ast.Tuple, ast.List, ast.Dict,
    ast.Subscript, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.USub, ast.Not, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow, ast.And,
    ast.Or, ast.In,
))  # fmt: skip
"""Nodes that name nothing themselves and so do no harm; they are most of a test's."""
REFUSED = (
    ast.AsyncFunctionDef, ast.ClassDef, ast.Match,
    ast.Yield, ast.YieldFrom,  # what is left of a generator would run in another job
)  # fmt: skip


def parsed(source: str) -> ast.Module:
    """As `syntax_tree`; an empty tree where code cannot be parsed, and so never runs."""
    try:
        return syntax_tree(source)
    except UNPARSABLE:
        return ast.Module([], [])


def nodes_of(source: str) -> Sequence[ast.AST]:
    """All nodes of a piece of code; none where it cannot be parsed."""
    try:
        return read_text(source).nodes
    except UNPARSABLE:
        return ()


def looks_at_identity(source: str) -> bool:
    """Whether a piece of a task's code compares objects by identity where that is not noticed when
    it is run (identity.py).
    """
    return any(map(_sees_identity, nodes_of(source)))


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
    return all(
        parsed(source).body and not any(map(_may_harm, nodes_of(source)))
        for source in sources
        if source
    )


def _may_harm(node: ast.AST) -> bool:
    if type(node) in NAMELESS:
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and ">>> " in node.value  # it may be run, as a doctest
    if any(name.startswith("__") for name in _identifiers(node)):
        return True
    match node:
        case ast.Import(names):
            return any(it.name not in MODULES for it in names)
        case ast.ImportFrom(module=module, names=names):
            harmless = MODULES.get(module or "", "").split()
            return any(it.name not in harmless for it in names)
        case ast.Attribute(attr=name, ctx=context):
            return name not in ATTRIBUTES or not isinstance(context, ast.Load)
        case ast.Name(id=name):
            return hasattr(builtins, name) and name not in FUNCTIONS
    return isinstance(node, REFUSED)


def _identifiers(node: ast.AST) -> list[str]:
    """What a node names that is no constant."""
    names = list[str]()
    for value in vars(node).values():
        if isinstance(value, str):
            names.append(value)
        elif isinstance(value, list):
            names += [part for part in value if isinstance(part, str)]
    return names


def _sees_identity(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in IDENTITY
        case ast.Compare(ops=ops, comparators=sides):
            return len(ops) > 1 and any(
                type(how) in (ast.Is, ast.IsNot) and type(side) is not ast.Constant
                for how, side in zip(ops, sides, strict=True)
            )
    return False


LIBRARY = frozenset(
    {*sys.stdlib_module_names, "np", "pd"}
    | {it for names in MODULES.values() for it in names.split()}
)
"""Names that mean what a library has, where nobody asks the program for another such thing."""


def requested_names(task: Task, code: Sequence[str]) -> list[str] | None:
    """The names of this code of the tests that a program is asked to define: those that the
    reference defines, or without one those of which the prompt speaks. None where neither says
    anything.
    """
    words = {word for text in code for word in WORD.findall(text)}
    if task.reference:
        requested = bound_names(task.reference)
    elif text := text_of(task):
        requested = {*WORD.findall(text)} - {*sys.stdlib_module_names, "np", "pd"}
    else:
        return None
    return sorted(requested & words | {task.entry_point})


def bound_names(source: str) -> set[str]:
    """The global names that code binds by definitions and assignments."""
    names, nodes = set[str](), list[ast.AST](parsed(source).body)
    while nodes:
        node = nodes.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
                globals_ = (it for it in ast.walk(node) if isinstance(it, ast.Global))
                names.update(name for it in globals_ for name in it.names)
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                pass  # what they bind is their own
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                nodes += ast.iter_child_nodes(node)
    return names


def imported_names(task: Task) -> dict[str, str]:
    """By name, the import of what the reference imports in a line of its own: tests that use such a
    name and do not define it mean that. What the reference defines too is its own, and what the
    prompt calls is the program's.
    """
    source, statements = task.reference or "", dict[str, str]()
    for part in parsed(source).body if "import" in source else []:
        if isinstance(part, ast.Import | ast.ImportFrom) and not getattr(part, "level", 0):
            for alias in part.names:
                statement = copy.copy(part)
                statement.names = [alias]
                statements[alias.asname or alias.name.partition(".")[0]] = ast.unparse(statement)
    if not statements:
        return statements
    defined, text = bound_names(source), text_of(task)
    return {
        name: statement
        for name, statement in statements.items()
        if name != "*"
        and "__" not in statement
        and name not in defined
        and not re.search(rf"\b{re.escape(name)}\(", text)
    }


def text_of(task: Task) -> str:
    """All that a model gets to read of a task."""
    parts = [task.prompt, task.stub, *(message.content for message in task.messages)]
    return "\n".join(filter(None, parts))


def node_classes(task: Task) -> list[list[str]]:
    """Name and source of each plain class that the setup defines, after the setup's imports. The
    program has them too, without the methods that the prompt does not speak of.
    """
    body = parsed(task.setup).body if "class " in task.setup else []
    text = text_of(task)
    classes: list[list[str]] = []
    names = {"object"}
    for part in body:
        if isinstance(part, ast.Import | ast.ImportFrom):
            classes.append(["", ast.unparse(part)])
        elif isinstance(part, ast.ClassDef) and part.name != task.entry_point:
            if not all(isinstance(base, ast.Name) and base.id in names for base in part.bases):
                continue
            if not re.search(rf"\b{part.name}\b", text):
                body_of_data = [statement for statement in part.body if _is_of_data(statement)]
                part = copy.copy(part)
                part.body = body_of_data or [ast.Pass()]
            names.add(part.name)
            classes.append([part.name, ast.unparse(part)])
    return classes if any(name for name, _ in classes) else []


def _is_of_data(part: ast.stmt) -> bool:
    return not isinstance(part, ast.FunctionDef) or part.name.startswith("__")
