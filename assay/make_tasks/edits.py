"""Edits of a source file's bytes by its syntax tree: the rest of the file keeps its own."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from assay.make_tasks.value_types import FUNCTIONS, Function, Types, type_of, types_in

Edits = Iterator["Edit"]
Change = tuple["Edit", ...]
"""Edits of a file that are one bug, in the order of the file; none overlaps another."""
COMMENT = rb"#[^\r\n]*"
TOKENS: dict[type[ast.AST], tuple[bytes, bytes]] = {
    ast.Lt: (rb"<", b"<="), ast.LtE: (rb"<=", b"<"), ast.Gt: (rb">", b">="),
    ast.GtE: (rb">=", b">"), ast.NotEq: (rb"!=", b"=="), ast.IsNot: (rb"is\s+not", b"is"),
    ast.NotIn: (rb"not\s+in", b"in"), ast.Add: (rb"\+", b"-"), ast.Sub: (rb"-", b"+"),
    ast.Div: (rb"/", b"*"), ast.Pow: (rb"\*\*", b"*"),
    ast.BitOr: (rb"\|", b"&"), ast.BitAnd: (rb"&", b"|"), ast.BitXor: (rb"\^", b"|"),
    ast.And: (rb"and", b"or"), ast.Or: (rb"or", b"and"),
}  # fmt: skip
"""Patterns of tokens, and the tokens that stand in their place."""


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
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Types] = {}

    def parent(self, node: ast.AST) -> ast.AST:
        """The node that holds a node; the module holds itself."""
        if not self._parents:
            self._parents = {
                child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
            }
        return self._parents.get(node, self.tree)

    def scope(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST:
        """The node of these kinds around a node, or the module."""
        while not isinstance(node := self.parent(node), (*kinds, ast.Module)):
            pass
        return node

    def type_of(self, node: ast.AST) -> str:
        """The type of an expression, if its function, or its class for `self`, tells it."""
        types: dict[str, str] = {}
        for scope in (self.scope(node, ast.ClassDef), self.scope(node, *FUNCTIONS)):
            if not isinstance(scope, ast.Module):
                if scope not in self._scopes:
                    self._scopes[scope] = types_in(scope)
                is_function = isinstance(scope, Function)
                types |= {name: kind for name, kind in self._scopes[scope].items()
                          if is_function or name.startswith("self.")}  # fmt: skip
        return type_of(node, types)

    def start(self, node: ast.AST) -> int:
        """Where a node begins, its decorators left out."""
        return self._lines[node.lineno - 1] + int(node.col_offset)  # type: ignore[attr-defined]

    def line_start(self, node: ast.AST) -> int:
        """Where the line begins on which a node does."""
        return self._lines[node.lineno - 1]  # type: ignore[attr-defined]

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
        return Edit(self.end(node) - len(name_in(node).encode()), self.end(node), name.encode())

    def after(self, node: ast.AST, new: bytes) -> Edit:
        """Insert bytes after a node."""
        return Edit(self.end(node), self.end(node), new)

    def indent(self, line: int) -> bytes:
        """The white space with which the line begins that begins there."""
        indent = re.match(rb"[ \t]*", self.data[line:])
        return indent[0] if indent else b""

    def comment_start(self, line: int) -> int:
        """Where the comment begins whose lines end above the line that begins there; the line
        itself where none does.
        """
        above = re.search(
            rb"(?:^" + self.indent(line) + COMMENT + rb"\r?\n)+\Z",
            self.data[:line], re.MULTILINE,
        )  # fmt: skip
        return above.start() if above else line

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


def applied(change: Change, data: bytes) -> bytes:
    """A file with all edits of a change."""
    for edit in sorted(change, key=lambda edit: -edit.start):
        data = edit.apply(data)
    return data


def name_in(node: ast.AST) -> str:
    """The name of a node, the last one of an attribute."""
    return str(next(getattr(node, key) for key in ("id", "attr", "arg") if hasattr(node, key)))
