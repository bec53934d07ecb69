"""Programs as tokens of their syntax trees, in which names and literals do not count."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from assay.bounded import bounded_cache
from assay.errors import SettingsError

SKIPPED = (
    ast.expr_context, ast.Import, ast.ImportFrom, ast.Pass, ast.type_ignore, ast.Global,
    ast.Nonlocal,
)  # fmt: skip
ANNOTATIONS = {"annotation", "returns", "type_comment", "type_params", "simple", "kind"}
NAMES = ("identifier", "simple_identifier", "shorthand_property_identifier")
"""Kinds of nodes that name something, in the grammars of different languages."""
LITERALS = ("literal", "string", "number", "integer", "float", "char")
LARGEST, MOST_ANGLES = 1 << 16, 2000
"""Bytes of a program that a grammar parses, and `<` in it: with 30,000 of them in a row Java's
takes 9 GB and ends the process."""
Token = tuple[str, str]
"""What it is, and its text where that is a literal's."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """A program without its comments, annotations, imports and the names that it chooses."""

    tokens: tuple[str, ...]
    """Node types in order; a name is a number, in the order of first use, and a literal its
    type."""
    exact: int
    """Hash of the tokens with the literals' values; equal in one process only."""


@bounded_cache(4096, 128)
def syntax_of(program: str, language: str) -> Syntax | None:
    """The syntax of a program; None where it has an error of syntax, is nested too deep or is too
    large for a grammar.

    Raises SettingsError where the language has no parser here.
    """
    try:
        tokens = list(_python(program) if language == "python" else _other(program, language))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Syntax(tuple(kind for kind, _ in tokens), hash(tuple(tokens)))


def _python(program: str) -> list[Token]:
    tree, names = ast.parse(program), dict[str, str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                names[name] = ""
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                names[name] = ""
    order, tokens = iter(range(len(names))), list[Token]()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Constant):
            tokens.append((type(node.value).__name__, repr(node.value)))
            return
        if isinstance(node, SKIPPED) or _is_text(node):
            return
        tokens.append(("Assign" if isinstance(node, ast.AnnAssign) else type(node).__name__, ""))
        for field in node._fields:
            value = None if field in ANNOTATIONS else getattr(node, field, None)
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, ast.AST):
                    visit(part)
                elif isinstance(part, str):
                    if names.get(part) == "":
                        names[part] = f"name{next(order)}"
                    tokens.append((names.get(part, part), ""))
            if field in ("body", "orelse") and isinstance(value, list):
                tokens.append(("end", ""))

    visit(tree)
    return tokens


def _is_text(node: ast.AST) -> bool:
    """Whether it is a docstring, or another text that does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _other(program: str, language: str) -> Iterator[Token]:
    names: dict[str, str] = {}
    source = program.encode("utf-8", "replace")
    if len(source) > LARGEST or source.count(b"<") > MOST_ANGLES:
        raise ValueError("too large to parse")
    root = _parser(language).parse(source).root_node
    if root.has_error:
        raise SyntaxError
    stack = [root]
    while stack:
        node = stack.pop()
        literal = node.is_named and any(word in node.type for word in LITERALS)
        leaf = node.is_named and not node.children  # the name of a field or of a type
        # the text of each node in a node would be read as often as it is nested
        text = node.text.decode("utf-8", "replace") if literal or leaf else node.type
        if literal:
            yield node.type, text
        elif node.type in NAMES:
            yield names.setdefault(text, f"name{len(names)}"), ""
        elif not node.is_extra:
            yield text, ""
            stack += reversed(node.children)


@cache
def _parser(language: str) -> Any:
    try:
        tree_sitter = import_module("tree_sitter")
        grammar: Any = import_module(f"tree_sitter_{language}")
    except ImportError:
        raise SettingsError(
            f"programs in {language} are not compared without a parser: pip install"
            " -e '.[overlap]' in assay's checkout"
        ) from None
    make = getattr(grammar, "language", None) or getattr(grammar, f"language_{language}")
    return tree_sitter.Parser(tree_sitter.Language(make()))
