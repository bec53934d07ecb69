"""Operators on the syntax tree: each makes bugs of one place, as edits of the source's bytes.

An edit replaces the bytes of one place, so that the rest of the file keeps its own.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

Edits = Iterator["Edit"]
Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = "body", "orelse", "finalbody"
NEIGHBOURS = (-1, 1)
"""Steps from a name to those that may stand for it."""
COMMENT = rb"#[^\r\n]*"
TOKENS: dict[type[ast.AST], tuple[bytes, bytes]] = {
    ast.Lt: (rb"<", b"<="), ast.LtE: (rb"<=", b"<"), ast.Gt: (rb">", b">="),
    ast.GtE: (rb">=", b">"), ast.Eq: (rb"==", b"!="), ast.NotEq: (rb"!=", b"=="),
    ast.Is: (rb"is", b"is not"), ast.IsNot: (rb"is\s+not", b"is"),
    ast.In: (rb"in", b"not in"), ast.NotIn: (rb"not\s+in", b"in"),
    ast.Add: (rb"\+", b"-"), ast.Sub: (rb"-", b"+"), ast.Mult: (rb"\*", b"//"),
    ast.Div: (rb"/", b"*"), ast.FloorDiv: (rb"//", b"/"), ast.Mod: (rb"%", b"//"),
    ast.Pow: (rb"\*\*", b"*"), ast.LShift: (rb"<<", b">>"), ast.RShift: (rb">>", b"<<"),
    ast.BitOr: (rb"\|", b"&"), ast.BitAnd: (rb"&", b"|"), ast.BitXor: (rb"\^", b"|"),
    ast.And: (rb"and", b"or"), ast.Or: (rb"or", b"and"),
}  # fmt: skip
"""Patterns of tokens, and the tokens that stand in their place."""
PAIRS = (
    "min max", "any all", "startswith endswith", "lstrip rstrip", "lower upper", "find rfind",
    "index rindex", "split rsplit", "partition rpartition", "append extend", "keys values",
    "floor ceil", "union intersection", "popleft pop", "appendleft append", "match search",
    "isdigit isalpha", "removeprefix removesuffix", "ljust rjust", "bisect_left bisect_right",
)  # fmt: skip
CALLS = {b: a for a, b in map(str.split, PAIRS)} | dict(map(str.split, PAIRS))
"""Names of functions, and those that stand in their place."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The bytes from `start` to `end` become `new`."""

    start: int
    end: int
    new: bytes

    def apply(self, data: bytes) -> bytes:
        """`data` with the edit."""
        return data[: self.start] + self.new + data[self.end :]


class SourceFile:
    """A source file: its bytes, its syntax tree, and where a node stands.

    Raises SyntaxError or ValueError for bytes that are no Python in UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        if data.decode("utf-8").startswith("\ufeff"):
            raise ValueError("the file begins with a byte order mark")
        self.data, self.tree = data, ast.parse(data)
        self._lines = [0, *accumulate(map(len, data.splitlines(keepends=True)))]

    def start(self, node: ast.AST) -> int:
        """Where a node begins, its decorators left out."""
        return self._lines[node.lineno - 1] + int(node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Where a node ends."""
        line, column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return int(self._lines[line - 1] + column)

    def text(self, node: ast.AST) -> bytes:
        """The bytes of a node."""
        return self.data[self.start(node) : self.end(node)]

    def line_end(self, node: ast.AST) -> int:
        """Where the line ends on which a node ends; its line break is left out."""
        last = self.data[: self._lines[node.end_lineno]]  # type: ignore[attr-defined]
        return len(last.rstrip(b"\r\n"))

    def tokens(self, nodes: Sequence[ast.AST], kinds: Sequence[ast.AST]) -> Edits:
        """Replace each token between two nodes by the one of TOKENS."""
        for (left, right), kind in zip(pairwise(nodes), kinds, strict=True):
            old, new = TOKENS.get(type(kind), (rb"(?!)", b""))
            pattern = re.compile(COMMENT + rb"|(" + old + rb")")
            places = pattern.finditer(self.data, self.end(left), self.start(right))
            if place := next((match for match in places if match[1]), None):
                yield Edit(place.start(1), place.end(1), new)

    def replaced(self, node: ast.AST, new: bytes) -> Edit:
        """Replace a node."""
        return Edit(self.start(node), self.end(node), new)

    def renamed(self, node: ast.AST, name: str) -> Edit:
        """Replace the name, or the last one, of a node."""
        return Edit(self.end(node) - len(_name(node).encode()), self.end(node), name.encode())

    def after(self, node: ast.AST, new: bytes) -> Edit:
        """Insert bytes after a node."""
        return Edit(self.end(node), self.end(node), new)

    def without(self, statement: ast.stmt, alone: bool) -> Edit:
        """Remove a statement with its lines and decorators; `pass` stands for one that is alone in
        its block or shares its line with others.
        """
        decorators = getattr(statement, "decorator_list", [])
        first = self._lines[min(node.lineno for node in (statement, *decorators)) - 1]
        start = self.data.index(b"@", first) if decorators else self.start(statement)
        after = self._lines[statement.end_lineno]  # type: ignore[index]
        rest = re.sub(COMMENT, b"", self.data[self.end(statement) : after])
        if alone or (self.data[first:start] + rest).strip():
            return Edit(start, self.end(statement), b"pass")
        return Edit(first, after, b"")


OPERATORS: dict[str, Callable[[SourceFile, ast.AST], Edits]] = {}
"""By the name that the table of `assay make-tasks` shows."""


def operator(
    function: Callable[[SourceFile, ast.AST], Edits],
) -> Callable[[SourceFile, ast.AST], Edits]:
    """Register an operator: it gets a source and one of its nodes, and yields edits."""
    OPERATORS[function.__name__] = function
    return function


def sites(source: SourceFile) -> Iterator[tuple[str, Edit]]:
    """All edits with the name of their operator, in the order of the tree. Annotations, decorators
    and the insides of f-strings, whose places Python 3.11 does not know, are left alone.
    """
    nodes: list[ast.AST] = [source.tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr):
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
    """`<` for `<=`, `==` for `!=`, `is` for `is not`."""
    if isinstance(node, ast.Compare):
        yield from source.tokens([node.left, *node.comparators], node.ops)


@operator
def arithmetic(source: SourceFile, node: ast.AST) -> Edits:
    """`-` for `+`, `//` for `*`; formatted and joined string literals are left alone."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        ends = [getattr(node, name) for name in node._fields[::2]]
        if not any(map(_is_text, ends)):
            yield from source.tokens(ends, [node.op])


@operator
def connective(source: SourceFile, node: ast.AST) -> Edits:
    """`or` for `and`, and the other way round."""
    if isinstance(node, ast.BoolOp):
        yield from source.tokens(node.values, [node.op] * (len(node.values) - 1))


@operator
def dropped_condition(source: SourceFile, node: ast.AST) -> Edits:
    """`a` for `a and b` or `a or b`; and `b`."""
    if isinstance(node, ast.BoolOp):
        for left, right in pairwise(node.values):
            yield Edit(source.start(left), source.start(right), b"")
            yield Edit(source.end(left), source.end(right), b"")


@operator
def negation(source: SourceFile, node: ast.AST) -> Edits:
    """`x` for `not x`, and `if not x` for `if x`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.replaced(node, re.sub(rb"^not\s*", b"", source.text(node)))
    test, kinds = getattr(node, "test", None), (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    if isinstance(test, kinds) and not isinstance(node, ast.Assert):
        yield source.replaced(test, b"not " + source.text(test))


@operator
def constant(source: SourceFile, node: ast.AST) -> Edits:
    """A whole number that is off by one, and `True` for `False`."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield source.replaced(node, str(not node.value).encode())
    elif type(node.value) is int and source.text(node) == str(node.value).encode():
        yield source.replaced(node, str(node.value + 1).encode())
        if node.value > 0:
            yield source.replaced(node, str(node.value - 1).encode())


@operator
def removed_branch(source: SourceFile, node: ast.AST) -> Edits:
    """An `if` without `else` goes, or the `else` and `elif` of one that has them; one side of a
    conditional expression; one `except` of several.
    """
    if isinstance(node, ast.IfExp):
        yield source.replaced(node, source.text(node.body))
        yield source.replaced(node, source.text(node.orelse))
    elif isinstance(node, ast.If) and node.orelse:
        yield Edit(source.line_end(node.body[-1]), source.line_end(node.orelse[-1]), b"")
    elif isinstance(node, ast.Try) and len(node.handlers) > 1:
        for before, handler in pairwise((node.body[-1], *node.handlers)):
            yield Edit(source.line_end(before), source.line_end(handler), b"")
    for block, statement in _statements(node):
        is_plain = isinstance(statement, ast.If) and not statement.orelse
        if is_plain and not source.text(statement).startswith(b"elif"):
            yield source.without(statement, len(block) == 1)


@operator
def dropped_statement(source: SourceFile, node: ast.AST) -> Edits:
    """A call, an assignment, a `return` before others, `break` or `continue` goes."""
    if isinstance(node, ast.Module | ast.ClassDef):
        return
    for block, statement in _statements(node):
        call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        kinds = (ast.Assign, ast.AugAssign, ast.Return, ast.Break, ast.Continue)
        if call or isinstance(statement, kinds):
            yield source.without(statement, len(block) == 1)


@operator
def wrong_name(source: SourceFile, node: ast.AST) -> Edits:
    """Another parameter or variable of the function, and another attribute of `self`."""
    if isinstance(node, Function):
        names = [name for name in _inside(node) if isinstance(name, ast.Name | ast.arg)]
        callables = {id(call.func) for call in _inside(node) if isinstance(call, ast.Call)}
        yield from _neighbours(source, [name for name in names if id(name) not in callables])
    elif isinstance(node, ast.ClassDef):
        yield from _neighbours(source, [
            part for part in ast.walk(node) if isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name) and part.value.id == "self"
        ])  # fmt: skip


@operator
def swapped_arguments(source: SourceFile, node: ast.AST) -> Edits:
    """`f(b, a)` for `f(a, b)`."""
    if isinstance(node, ast.Call) and source.text(node.func) != b"isinstance":
        for left, right in pairwise(node.args):
            if not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
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
    """A slice or range that begins one later, ends one earlier, or begins at the start."""
    if isinstance(node, ast.Slice):
        lower, upper = node.lower, node.upper
        if lower:
            yield source.replaced(lower, b"")
    elif isinstance(node, ast.Call) and source.text(node.func) == b"range" and node.args:
        lower, upper = (None, *node.args)[-2:] if len(node.args) < 3 else node.args[:2]
    else:
        return
    if lower and not isinstance(lower, ast.Constant):
        yield source.after(lower, b" + 1")
    if upper and not isinstance(upper, ast.Constant):
        yield source.after(upper, b" - 1")


@operator
def wrong_call(source: SourceFile, node: ast.AST) -> Edits:
    """A function or method beside the right one: `max` for `min`, `rfind` for `find`."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name | ast.Attribute) and _name(function) in CALLS:
        yield source.renamed(function, CALLS[_name(function)])


def _is_text(node: ast.expr) -> bool:
    return isinstance(getattr(node, "value", None), str | bytes) or isinstance(node, ast.JoinedStr)


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


def _neighbours(source: SourceFile, nodes: list[ast.AST]) -> Edits:
    """Each name that is read becomes one of those before and after it in the order in which they
    are first bound.
    """
    bound = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store | None)]
    names = [name for name in dict.fromkeys(map(_name, bound)) if name not in ("self", "cls")]
    for node in nodes:
        name = _name(node)
        if isinstance(getattr(node, "ctx", None), ast.Load) and name in names and len(names) > 1:
            for step in NEIGHBOURS[: len(names) - 1]:
                yield source.renamed(node, names[(names.index(name) + step) % len(names)])


def _name(node: ast.AST) -> str:
    return str(next(getattr(node, key) for key in ("id", "attr", "arg") if hasattr(node, key)))
