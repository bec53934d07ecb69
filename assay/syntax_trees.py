"""Trees of Python's code, one thread at a time; each text of a task is parsed once."""

import ast
import os
from threading import Lock
from typing import Any, NamedTuple

from assay.bounded import BoundedDict

UNPARSABLE = SyntaxError, ValueError, RecursionError, MemoryError
"""What Python raises for a text that is no code."""
TREE_BYTES = 200
"""About the most bytes of a tree that come of a character of source."""


class ReadText(NamedTuple):
    """What comes of a text that is code."""

    tree: ast.Module
    nodes: list[ast.AST]
    """All of its nodes."""


def weight_of(part: str | ReadText | Exception) -> int:
    """About the bytes that a source takes with its tree."""
    return TREE_BYTES * len(part) if isinstance(part, str) else 0


READ_TEXTS: BoundedDict[str, ReadText | Exception] = BoundedDict(20_000, 16, weight_of)
_turn = Lock()
# a child that another thread forks while this one parses would wait for ever
os.register_at_fork(after_in_child=_turn._at_fork_reinit)  # type: ignore[attr-defined]


def parse_alone(source: str | bytes) -> ast.Module:
    """A new tree. Python 3.11 raises SystemError where two threads parse at once: here one waits.
    Raises as ast.parse.
    """
    with _turn:
        return ast.parse(source)


def read_text(source: str) -> ReadText:
    """The tree and the nodes of a text. Nobody may change them: all who read the text get the same
    ones. Raises as ast.parse.
    """
    with _turn:
        content = READ_TEXTS.get(source)
        if content is None:
            try:
                tree = ast.parse(source)
                content = ReadText(tree, walk(tree))
            except UNPARSABLE as error:
                content = error
            READ_TEXTS[source] = content
    if isinstance(content, Exception):
        raise content.with_traceback(None)
    return content


def syntax_tree(source: str) -> ast.Module:
    """The tree of a text, which nobody may change. Raises as ast.parse."""
    return read_text(source).tree


def walk(*roots: ast.AST) -> list[ast.AST]:
    """The nodes of trees, each once, as ast.walk gives them, in a third of its time."""
    nodes, listed = list[ast.AST](), set[ast.AST]()
    left: list[Any] = [*roots]
    for node in left:
        if node in listed:
            continue  # Python has one Load for all
        listed.add(node)
        nodes.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [part for part in value if isinstance(part, ast.AST)]
    return nodes
