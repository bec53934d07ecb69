"""Operators on the syntax tree: each makes bugs of one place that a person could have written.

They keep the types of values where the code tells these, and names stay bound: a bug should change
what a program does, rarely crash it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from assay.make_tasks.edits import Edit, Edits, SourceFile, name_in
from assay.make_tasks.value_types import FUNCTIONS, NUMBER, Function, uses_in

BLOCKS = "body", "orelse", "finalbody"
MOST_LINES = 6
"""Lines of a branch that goes: nobody forgets a longer one."""
SMALL = 20
"""Whole numbers below which a person is off by one: nobody writes 1001 for 1000, or 11 for 10."""
PLAIN = ast.Name | ast.Attribute | ast.Call | ast.Subscript
PAIRS = (
    "min max", "any all", "startswith endswith", "lstrip rstrip", "lower upper", "find rfind",
    "index rindex", "split rsplit", "partition rpartition", "floor ceil", "union intersection",
    "fullmatch match", "isdigit isalnum",
    "removeprefix removesuffix", "ljust rjust", "bisect_left bisect_right",
)  # fmt: skip
CALLS = {b: a for a, b in map(str.split, PAIRS)} | dict(map(str.split, PAIRS)) | {
    "strip": "rstrip", "search": "match", "popleft": "pop", "appendleft": "append",
    "setdefault": "get",
}  # fmt: skip
"""Names of functions, and those that stand in their place: they take and return the same types."""

TYPE_TESTS = ("isinstance", "issubclass", "hasattr", "callable")

Operator = Callable[[SourceFile, ast.AST], Edits]
OPERATORS: dict[str, Operator] = {}
"""By the name that the table of `assay make-tasks` shows."""


def operator(function: Operator) -> Operator:
    """Register an operator: it gets a source and one of its nodes, and yields edits."""
    OPERATORS[function.__name__] = function
    return function


def sites(source: SourceFile, root: ast.AST | None = None) -> Iterator[tuple[str, Edit]]:
    """All edits below a node with the name of their operator, in the order of the tree.
    Annotations, decorators and the insides of f-strings, whose places Python 3.11 does not know,
    are left alone.
    """
    nodes: list[ast.AST] = [root or source.tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr) or _is_script(source, node):
            continue
        for name, function in OPERATORS.items():
            for edit in function(source, node):
                yield name, edit
        skipped = ("annotation", "returns", "decorator_list")
        for field, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            if field not in skipped:
                nodes += [child for child in children if isinstance(child, ast.AST)]


@operator
def comparison(source: SourceFile, node: ast.AST) -> Edits:
    """`<` for `<=` and the other way round; `==` for `!=`, `is` for `is not`, `in` for `not in`:
    people forget a `not`, and rarely write one too many. `x is not None` stays where what it guards
    uses `x`.
    """
    if isinstance(node, ast.Compare) and not _guards_use(source, node):
        yield from source.tokens([node.left, *node.comparators], node.ops)


@operator
def arithmetic(source: SourceFile, node: ast.AST) -> Edits:
    """`-` for `+`, `*` for `/`, where both sides are numbers; `|` for `&` of sets."""
    if not isinstance(node, ast.BinOp | ast.AugAssign):
        return
    left, right = (getattr(node, name) for name in node._fields[::2])
    types = {source.type_of(left), source.type_of(right)}
    if isinstance(node.op, ast.Add | ast.Sub):
        is_kept = NUMBER in types and types <= {NUMBER, ""}
    elif isinstance(node.op, ast.BitOr | ast.BitAnd):
        is_kept = "set" in types
    else:
        is_kept = types == {NUMBER}
    if is_kept:
        yield from source.tokens([left, right], [node.op])


@operator
def connective(source: SourceFile, node: ast.AST) -> Edits:
    """`or` for `and`, and the other way round, between conditions; `x or default` stays, and so
    does a guard: `a is not None and a.b`.
    """
    if isinstance(node, ast.BoolOp) and _is_condition(source, node):
        for left, right in pairwise(node.values):
            if not _is_guard(left, right):
                yield from source.tokens([left, right], [node.op])


@operator
def dropped_condition(source: SourceFile, node: ast.AST) -> Edits:
    """`a` for `a and b` or `a or b`; and `b`."""
    if isinstance(node, ast.BoolOp) and _is_condition(source, node):
        for left, right in pairwise(node.values):
            yield Edit(source.start(left), source.start(right), b"")
            yield Edit(source.end(left), source.end(right), b"")


@operator
def negation(source: SourceFile, node: ast.AST) -> Edits:
    """`x` for `not x`, but not of what asks for a type."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        call = node.operand if isinstance(node.operand, ast.Call) else None
        if not call or name_of(call.func) not in TYPE_TESTS:
            yield source.replaced(node, re.sub(rb"^not\s*", b"", source.text(node)))


@operator
def constant(source: SourceFile, node: ast.AST) -> Edits:
    """A whole number that a person takes for another, and `True` for `False`; not 0 where it makes
    no sense, and not a default, which is another operator's.
    """
    parent = source.parent(node)
    is_step = isinstance(parent, ast.Slice) and parent.step is node
    is_other = isinstance(parent, ast.arguments | ast.While)
    if isinstance(node, ast.Constant) and not (is_step or is_other):
        yield from _other_constant(source, node)


@operator
def wrong_default(source: SourceFile, node: ast.AST) -> Edits:
    """Another default of a parameter, and none for `x.get(key, default)`."""
    if isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            if isinstance(default, ast.Constant):
                yield from _other_constant(source, default)
                if isinstance(default.value, str) and default.value in ("", " "):
                    yield source.replaced(default, b'""' if default.value else b'" "')
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get":
        for default in () if len(node.args) != 2 or _is_none(node.args[1]) else node.args[1:]:
            yield Edit(source.end(node.args[0]), source.end(default), b"")


@operator
def removed_branch(source: SourceFile, node: ast.AST) -> Edits:
    """An `if` without `else` goes, or the `else` and `elif` of one that has them; or one side of a
    conditional expression.
    """
    if isinstance(node, ast.IfExp):
        for side in (node.body, node.orelse):
            if not _is_none(side):
                yield source.replaced(node, source.text(side))
    elif isinstance(node, ast.If) and node.orelse and not _is_needed(source, node):
        yield Edit(source.line_end(node.body[-1]), source.line_end(node.orelse[-1]), b"")
    for block, statement in _statements(node):
        if isinstance(statement, ast.If) and not _is_case(statement):
            yield from _without(source, block, statement)


@operator
def removed_case(source: SourceFile, node: ast.AST) -> Edits:
    """An `if x is None` or `if not x` goes; one `except` of several, the only one, or one of its
    exceptions.
    """
    for block, statement in _statements(node):
        if isinstance(statement, ast.If) and _is_case(statement):
            yield from _without(source, block, statement)
    if isinstance(node, ast.Try) and len(node.handlers) > 1:
        for before, handler in pairwise((node.body[-1], *node.handlers)):
            yield Edit(source.line_end(before), source.line_end(handler), b"")
    elif isinstance(node, ast.Try) and not (node.orelse or node.finalbody):
        yield from _unwrapped(source, node)
    elif isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
        for left, right in pairwise(node.type.elts):
            if len(node.type.elts) == 2:
                yield source.replaced(node.type, source.text(right))
                yield source.replaced(node.type, source.text(left))
            else:
                yield Edit(source.start(left), source.start(right), b"")
                yield Edit(source.end(left), source.end(right), b"")


@operator
def dropped_statement(source: SourceFile, node: ast.AST) -> Edits:
    """A call, an assignment to what is bound before, an early `return`, `break` or `continue`
    goes, but not the only statement of its block.
    """
    if isinstance(node, ast.Module | ast.ClassDef):
        return
    for block, statement in _statements(node):
        call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        is_early = isinstance(statement, ast.Return) and not isinstance(node, Function)
        is_again = isinstance(statement, ast.Assign) and _is_bound_before(source, statement)
        kinds = (ast.AugAssign, ast.Break, ast.Continue)
        if len(block) > 1 and (call or is_early or is_again or isinstance(statement, kinds)):
            yield from _dropped(source, statement)


@operator
def wrong_name(source: SourceFile, node: ast.AST) -> Edits:
    """Another parameter or variable of the function, and another attribute of `self`, that has the
    same type or is used in the same way.
    """
    names: list[ast.AST] = []
    if isinstance(node, Function):
        names = [name for name in _inside(node) if isinstance(name, ast.Name | ast.arg)]
    elif isinstance(node, ast.ClassDef):
        names = [part for part in ast.walk(node) if isinstance(part, ast.Attribute)
                 and isinstance(part.value, ast.Name) and part.value.id == "self"]  # fmt: skip
    yield from _others(source, node, names)


@operator
def swapped_arguments(source: SourceFile, node: ast.AST) -> Edits:
    """`f(b, a)` for `f(a, b)`, where both are of one type, or names that are used in one way."""
    if isinstance(node, ast.Call) and source.text(node.func) not in (b"isinstance", b"max", b"min"):
        for left, right in pairwise(node.args):
            uses = uses_in(source.scope(node, *FUNCTIONS))
            is_alike = uses.get(name_of(left), set()) & uses.get(name_of(right), set())
            are_literals = [isinstance(side, ast.Constant) for side in (left, right)]
            if any(are_literals) and not (
                all(are_literals) and isinstance(node.func, ast.Attribute)
            ):
                continue  # nobody takes a variable for a literal, or a label for another
            if (source.type_of(left) or is_alike) and source.type_of(left) == source.type_of(right):
                middle = source.data[source.end(left) : source.start(right)]
                swapped = source.text(right) + middle + source.text(left)
                yield Edit(source.start(left), source.end(right), swapped)


@operator
def dropped_argument(source: SourceFile, node: ast.AST) -> Edits:
    """A keyword argument that follows another argument goes."""
    if isinstance(node, ast.Call):
        keywords = [keyword for keyword in node.keywords if keyword.arg]
        for before, keyword in pairwise((*node.args[-1:], *keywords)):
            yield Edit(source.end(before), source.end(keyword), b"")


@operator
def boundary(source: SourceFile, node: ast.AST) -> Edits:
    """A slice, range or index that is off by one; or a slice with an end begins at the start."""
    if isinstance(node, ast.Slice):
        if node.lower and node.upper:
            yield source.replaced(node.lower, b"")
        places = [(node.lower, b" + 1"), (node.upper, b" - 1")]
    elif isinstance(node, ast.Call) and source.text(node.func) == b"range" and node.args:
        lower, upper = (None, *node.args)[-2:] if len(node.args) < 3 else node.args[:2]
        places = [(lower, b" + 1"), (upper, b" - 1")]
    elif isinstance(node, ast.Subscript) and source.type_of(node.slice) == NUMBER:
        places = [(node.slice, b"")]
    else:
        return
    for part, step in places:
        if isinstance(part, ast.BinOp) and getattr(part.right, "value", None) == 1:
            if isinstance(part.op, ast.Add | ast.Sub):
                yield Edit(source.end(part.left), source.end(part), b"")
        elif step and isinstance(part, PLAIN | ast.BinOp):
            yield source.after(part, step)


@operator
def wrong_call(source: SourceFile, node: ast.AST) -> Edits:
    """A function or method beside the right one: `max` for `min`, `rfind` for `find`."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name | ast.Attribute) and name_in(function) in CALLS:
        yield source.renamed(function, CALLS[name_in(function)])


@operator
def missed_copy(source: SourceFile, node: ast.AST) -> Edits:
    """`x` for `x.copy()` or `x[:]`: what changes one changes the other."""
    if isinstance(node, ast.Call) and not (node.args or node.keywords):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "copy":
            yield Edit(source.end(node.func.value), source.end(node), b"")
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        is_slice = isinstance(node.slice, ast.Slice)
        if is_slice and not any(ast.iter_child_nodes(node.slice)):
            yield Edit(source.end(node.value), source.end(node), b"")


def _is_script(source: SourceFile, node: ast.AST) -> bool:
    """Whether a node is the `if __name__ == "__main__"` of a file, which no test runs."""
    return isinstance(node, ast.If) and b"__name__" in source.text(node.test)


def _is_guard(left: ast.expr, right: ast.AST) -> bool:
    """Whether a condition says of something that another uses that it is there, or its type."""
    test = left.operand if isinstance(left, ast.UnaryOp) else left
    if isinstance(test, ast.Call) and name_of(test.func) in TYPE_TESTS:
        guarded: ast.expr = test.args[0] if test.args else test
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.In):
        guarded = test.left
    else:
        guarded = test
    return ast.unparse(guarded) in map(ast.unparse, ast.walk(right))


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _guards_use(source: SourceFile, node: ast.Compare) -> bool:
    """Whether a comparison says that something is not None, for code that uses it."""
    if not isinstance(node.ops[0], ast.IsNot):
        return False
    parent: ast.AST = node
    while isinstance(parent := source.parent(child := parent), ast.BoolOp):
        if any(_is_guard(node, other) for other in parent.values if other is not child):
            return True
    body = getattr(parent, "body", ()) if getattr(parent, "test", None) is child else ()
    parts = body if isinstance(body, list) else [body]
    return any(isinstance(part, ast.AST) and _is_guard(node, part) for part in parts)


def _is_condition(source: SourceFile, node: ast.BoolOp) -> bool:
    """Whether only the truth of an expression counts, as in `if`, or each part is a bool."""
    parent: ast.AST = node
    while isinstance(parent := source.parent(child := parent), ast.BoolOp | ast.UnaryOp):
        pass
    is_test = getattr(parent, "test", None) is child or child in getattr(parent, "ifs", ())
    return is_test or all(source.type_of(value) == "bool" for value in node.values)


def _other_constant(source: SourceFile, node: ast.Constant) -> Edits:
    if isinstance(node.value, bool):
        yield source.replaced(node, str(not node.value).encode())
    elif type(node.value) is int and source.text(node) == str(node.value).encode():
        parent = source.parent(node)
        is_sign = isinstance(parent, ast.UnaryOp)
        is_divisor = isinstance(getattr(parent, "op", None), ast.Div | ast.FloorDiv | ast.Mod)
        is_shift = isinstance(getattr(parent, "op", None), ast.LShift | ast.RShift)
        is_count = isinstance(parent, ast.AugAssign) and node.value == 1
        least = 1 if is_sign or is_divisor else 0
        for other in () if is_shift or is_count else _confused_with(node.value):
            if other >= least:
                yield source.replaced(node, str(other).encode())


def _confused_with(number: int) -> tuple[int, ...]:
    """Numbers that a person writes for another: the next ones of a small one, the limit for the
    power of two beside it, a zero too few.
    """
    if number < SMALL and (number % 10 or not number):
        return number + 1, number - 1
    if not number & (number - 1):
        return (number - 1,)
    if not number & (number + 1):
        return (number + 1,)
    return () if number % 100 else (number // 10,)


def _is_needed(source: SourceFile, node: ast.If) -> bool:
    """Whether nobody forgets the `else` or `elif` of an `if`: it is long, or the only thing that a
    function returns there.
    """
    is_last = not _following(source, node)
    return _is_essential(node.orelse) or (is_last and _returns(node.orelse))


def _returns(block: list[ast.stmt]) -> bool:
    """Whether a block ends by returning a value, as each branch of its last `if` does."""
    last = block[-1]
    if isinstance(last, ast.If):
        return _returns(last.body) or bool(last.orelse and _returns(last.orelse))
    return isinstance(last, ast.Return) and last.value is not None


def _following(source: SourceFile, node: ast.stmt) -> list[ast.stmt]:
    """What follows a statement in its block, or that of the `if` of which it is the `elif`."""
    parent = source.parent(node)
    block = next(block for block, statement in _statements(parent) if statement is node)
    rest = block[block.index(node) + 1 :]
    is_elif = isinstance(parent, ast.If) and node in parent.orelse
    return rest or (_following(source, parent) if is_elif and isinstance(parent, ast.If) else [])


def _is_case(node: ast.If) -> bool:
    """Whether an `if` handles a value that is absent."""
    test = node.test
    is_absent = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)
    return is_absent or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _without(source: SourceFile, block: list[ast.stmt], node: ast.If) -> Edits:
    is_elif = source.text(node).startswith(b"elif")
    if len(block) > 1 and not (node.orelse or is_elif or _is_essential(node.body)):
        yield from _dropped(source, node)


def _dropped(source: SourceFile, statement: ast.stmt) -> Edits:
    """Without a statement and the comment above it, unless `pass` would stand for it: nobody
    forgets a statement and writes that.
    """
    edit = source.without(statement, alone=False)
    if not edit.new:
        yield Edit(source.comment_start(edit.start), edit.end, b"")


def _is_essential(block: list[ast.stmt]) -> bool:
    """Whether statements are too many, or import or define a name without which all fails."""
    kinds = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)
    lines = (block[-1].end_lineno or 0) - block[0].lineno + 1
    return lines > MOST_LINES or any(isinstance(node, kinds) for node in block)


def _unwrapped(source: SourceFile, node: ast.Try) -> Edits:
    """The block of a `try` alone, one indent less."""
    first = source.data.rindex(b"\n", 0, source.start(node.body[0])) + 1
    start, end = source.start(node), source.end(node.body[-1])
    extra = node.body[0].col_offset - node.col_offset
    lines = source.data[first:end].split(b"\n")
    is_long = any(isinstance(part, ast.Constant | ast.JoinedStr) and part.lineno != part.end_lineno
                  for statement in node.body for part in ast.walk(statement))  # fmt: skip
    indent = source.data[first : first + node.body[0].col_offset]
    is_deeper = first > start and extra > 0 and not indent.strip()
    is_plain = all(line.startswith(indent) or not line.strip() for line in lines)
    if is_deeper and is_plain and not is_long:
        body = b"\n".join(line[extra:] for line in lines)[node.col_offset :]
        yield Edit(start, source.end(node), body)


def _is_bound_before(source: SourceFile, statement: ast.Assign) -> bool:
    """Whether what an assignment binds has a value without it."""
    function = source.scope(statement, *FUNCTIONS)
    if not isinstance(function, Function):
        return False
    for target in statement.targets:
        if isinstance(target, ast.Attribute) and function.name == "__init__":
            return False
        is_place = isinstance(target, ast.Attribute | ast.Subscript)
        if not is_place and name_of(target) not in _bound(source, function, statement):
            return False
    return True


def name_of(node: ast.AST) -> str:
    """The name that a node is; empty for any other."""
    return node.id if isinstance(node, ast.Name) else ""


def _bound(source: SourceFile, function: Function, place: ast.AST) -> set[str]:
    """Names of a function that surely have a value at a place of it: parameters, what statements of
    the blocks around the place bind before it, and the targets of loops around it.
    """
    arguments = function.args
    names = {
        argument.arg for argument in
        (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }  # fmt: skip
    node = place
    while node is not function and not isinstance(node, ast.Module):
        parent = source.parent(node)
        if isinstance(parent, ast.For | ast.AsyncFor) and node in parent.body:
            names |= {name_of(part) for part in ast.walk(parent.target)}
        blocks = (getattr(parent, field, None) for field in BLOCKS)
        block = next((block for block in blocks if isinstance(block, list) and node in block), [])
        for statement in block[: block.index(node)] if block else []:
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                names |= {name_of(part) for target in targets for part in ast.walk(target)}
        node = parent
    return names - {""}


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """The statements of a node's blocks, each with its block."""
    for field in BLOCKS:
        block = getattr(node, field, None) or []
        for statement in block if isinstance(block, list) else []:
            yield block, statement


def _inside(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, those of functions and classes in it left out."""
    nodes: list[ast.AST] = [function.args, *reversed(function.body)]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda | ast.JoinedStr):
            nodes += reversed(list(ast.iter_child_nodes(node)))


def _others(source: SourceFile, scope: ast.AST, nodes: list[ast.AST]) -> Edits:
    """Each name that is read becomes the one bound before and after it, among those like it."""
    uses = uses_in(scope)
    bound = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store | None)]
    first = {name_in(node): node for node in reversed(bound)}
    names = [name for name in dict.fromkeys(map(name_in, bound)) if name not in ("self", "cls")]
    prefix = "self." if isinstance(scope, ast.ClassDef) else ""
    types = {name: source.type_of(node) for name, node in first.items()}
    for node in nodes:
        if not isinstance(getattr(node, "ctx", None), ast.Load) or name_in(node) not in names:
            continue
        parent, name = source.parent(node), name_in(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            continue
        bound_here = _bound(source, scope, node) if isinstance(scope, Function) else set(names)
        alike = [
            other for other in names if other == name or (other in bound_here
            and types[other] == types[name]
            and (types[name] or uses.get(prefix + other, set()) & uses.get(prefix + name, set())))
        ]  # fmt: skip
        for step in (-1, 1)[: len(alike) - 1]:
            other = alike[(alike.index(name) + step) % len(alike)]
            if not _meets_itself(source, node, prefix + other):
                yield source.renamed(node, other)


def _meets_itself(source: SourceFile, node: ast.AST, other: str) -> bool:
    """Whether a name in the place of a node would stand beside itself, as in `x == x`, `x.f(x)` and
    `for x in x`; or the node is where a name has its own: `f(x=x)`, `self.x = x`.
    """
    parent = source.parent(node)
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent]
    if any(getattr(part, "arg", getattr(part, "attr", "")) == name_in(node) for part in targets):
        return True
    is_whole = isinstance(
        parent, ast.For | ast.AsyncFor | ast.comprehension | ast.Assign | ast.expr
    )
    siblings = (child for child in ast.iter_child_nodes(parent) if child is not node)
    parts = (part for child in siblings for part in (ast.walk(child) if is_whole else [child]))
    return any(hasattr(part, "lineno") and source.text(part) == other.encode() for part in parts)
