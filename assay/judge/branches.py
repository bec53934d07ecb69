"""Whether a line of a test's code is reached only under a condition, which may hang on what the
program has answered.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from assay.judge.task_code import parsed
from assay.judge.worker_messages import PROGRAM

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_chosen(frame: FrameType | None, sources: Mapping[str, str], entry_point: str) -> bool:
    """Whether a frame or one of its callers is in a branch of this code, by file names, or where an
    answer has led it.
    """
    answers = names_of_answers([*sources.values()], entry_point)
    while frame is not None:
        source, line = sources.get(frame.f_code.co_filename), frame.f_lineno
        if source is not None and (is_in_branch(source, line) or is_led(source, line, answers)):
            return True
        frame = frame.f_back
    return False


def is_in_branch(source: str, line: int) -> bool:
    """Whether code reaches a line, or a part of it, only under a condition."""
    branches = (branch for node in ast.walk(parsed(source)) for branch in _branches(node))
    return any(it.lineno <= line <= (it.end_lineno or it.lineno) for it in branches)


def is_led(source: str, line: int, answers: frozenset[str]) -> bool:
    """Whether code reaches a line because a comprehension has kept an item, or a `return`, `break`
    or `continue` was left out, by a condition on what the program has answered. A loop over an
    answer leads nowhere: a right program's has items too.
    """
    led = (part for node in ast.walk(parsed(source)) for part in _led(node, answers))
    return any(it.lineno <= line <= (it.end_lineno or it.lineno) for it in led)


def _branches(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    """The parts of a node that a condition leads to."""
    match node:
        case ast.If(body=body, orelse=other) | ast.While(body=body, orelse=other):
            yield from (*body, *other)
        case ast.match_case(body=body) | ast.ExceptHandler(body=body):
            yield from body
        case ast.Try(orelse=body):
            yield from body
        case ast.IfExp(body=first, orelse=second):
            yield from (first, second)
        case ast.BoolOp(op=ast.Or(), values=[_, *others]):  # `and` goes on where all is well
            yield from others
        case ast.Assert(msg=ast.expr() as message):
            yield message


def _led(node: ast.AST, answers: frozenset[str]) -> Iterator[ast.stmt | ast.expr]:
    """The parts of a node to which an answer leads."""
    if isinstance(node, COMPREHENSIONS):
        if any(_mentions(it, answers) for part in node.generators for it in part.ifs):
            yield node
    elif isinstance(node, (*FUNCTIONS, *LOOPS)):
        yield from _after_exits(node.body, answers)


def _after_exits(body: Sequence[ast.stmt], answers: frozenset[str]) -> Iterator[ast.stmt]:
    """The statements of a body behind the first that may leave it because of an answer."""
    for at, statement in enumerate(body):
        hangs = any(_mentions(it, answers) for it in _conditions(statement))
        if hangs and _leaves(statement, (ast.Return, ast.Break, ast.Continue)):
            yield from body[at + 1 :]
            return


def _conditions(statement: ast.stmt) -> Iterator[ast.AST]:
    """What decides which parts of a statement run."""
    for node in ast.walk(statement):
        match node:
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.Match(subject=subject):
                yield subject


def _leaves(node: ast.AST, exits: tuple[type[ast.stmt], ...]) -> bool:
    """Whether one of these exits leaves a statement."""
    if isinstance(node, SCOPES):
        return False
    inside = (ast.Return,) if isinstance(node, LOOPS) else exits
    return isinstance(node, exits) or any(
        _leaves(part, inside) for part in ast.iter_child_nodes(node)
    )


def names_of_answers(sources: Sequence[str], entry_point: str) -> frozenset[str]:
    """The names in code that stand for something of the program's, or for what comes of that."""
    nodes = [node for source in sources for node in ast.walk(parsed(source))]
    bound = {name for node in nodes for name in _bound(node)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    functions = {node.name: node for node in nodes if isinstance(node, FUNCTIONS)}
    of_program = {name for node in nodes for name in _imported(node)}
    names = used - bound - set(dir(builtins)) | {entry_point, "candidate"} | of_program
    follows = defaultdict[str, set[str]](set)
    for part, results in (pair for node in nodes for pair in _comes_of(node, functions)):
        for it in ast.walk(part):
            if isinstance(it, ast.Name):
                follows[it.id] |= results
    left = [*names]
    while left:
        new = follows[left.pop()] - names
        names |= new
        left += new
    return frozenset(names)


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)):
            yield name
        case ast.Import(names=parts) | ast.ImportFrom(names=parts):
            yield from ((part.asname or part.name).partition(".")[0] for part in parts)


def _imported(node: ast.AST) -> Iterator[str]:
    """The names by which a node imports the program, or something of it."""
    match node:
        case ast.ImportFrom(module=module, names=parts) if module in PROGRAM:
            yield from (part.asname or part.name for part in parts)
        case ast.Import(names=parts):
            yield from (part.asname or part.name for part in parts if part.name in PROGRAM)


def _comes_of(
    node: ast.AST, functions: Mapping[str, ast.AST]
) -> Iterator[tuple[ast.AST, set[str]]]:
    """The parts of a node, each with the names that it binds to what comes of that part."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in functions:
            inside = ast.walk(functions[name])
            yield node, {it.arg for it in inside if isinstance(it, ast.arg)}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield from ((it, {name}) for it in ast.walk(node) if isinstance(it, ast.Return))
        case (
            ast.Assign(value=value) | ast.AugAssign(value=value) | ast.NamedExpr(value=value)
            | ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.comprehension(iter=value)
            | ast.AnnAssign(value=ast.expr() as value) | ast.withitem(context_expr=value)
        ):  # fmt: skip
            yield value, {*_bound_in(node)}


def _bound_in(node: ast.AST) -> Iterator[str]:
    parts = (getattr(node, name, None) for name in ("target", "optional_vars", "targets"))
    targets = [it for part in parts for it in (part if isinstance(part, list) else [part]) if it]
    for target in targets:
        yield from (it.id for it in ast.walk(target) if isinstance(it, ast.Name))


def _mentions(node: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(it, ast.Name) and it.id in names for it in ast.walk(node))
