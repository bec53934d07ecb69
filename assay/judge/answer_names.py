"""Notices in the worker that a test looks something up by a name or a path that is an answer's, as
in `getattr(obj, f(x))`: what it finds there may equal everything, or be the expected value.

The functions that look up by names are wrapped for the test's code; what runs a text as code is
noticed by the audit hook instead (answer_code.py).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from assay.judge.answer_code import CALLER, AnswerCode, code_of_data, is_library, names_in

BUILTIN = {"getattr": 1, "setattr": 1, "delattr": 1}
"""Functions of Python's own, and which argument is the name."""
FUNCTIONS = {
    "importlib": {"import_module": 0, "__import__": 0},
    "operator": {"attrgetter": 0, "methodcaller": 0},
    "pkgutil": {"resolve_name": 0}, "pydoc": {"locate": 0, "resolve": 0},
    "string": {"Formatter.get_field": 1}, "logging.config": {"BaseConfigurator.resolve": 1},
    "inspect": {"getattr_static": 1}, "runpy": {"run_module": 0},
    "_pytest.fixtures": {"FixtureRequest.getfixturevalue": 1},
    "_pytest.monkeypatch": {
        "MonkeyPatch.setattr": 1, "MonkeyPatch.delattr": 1},
    "yaml.constructor": {
        "FullConstructor.find_python_name": 1, "FullConstructor.find_python_module": 1},
}  # fmt: skip
"""Those of modules: what is not loaded is not wrapped before a test imports something."""
USED_BY_LIBRARIES = ("importlib", "operator", "inspect", "_pytest.fixtures", "_pytest.monkeypatch")
"""Modules of which libraries call the functions with names of their own."""
SPACES = {"vars", "globals", "locals", "__dict__", "modules"}
"""What gives the names that there are, with their values."""
BY_SYNTAX = re.compile(rf"\.format(?:_map)?\b|\b(?:{'|'.join(SPACES)})\b")
"""In code that looks up names by more than a function of its own."""
WORDS = ".format", *SPACES
"""One of these stands in such code; to look for them takes a tenth of the time."""
REACHES = re.compile(r"\{[^{}]*[.\[]")
"""In a format that reads an attribute or an item."""
FORMAT, INDEX = "<format>", "<index>"
"""What a test's code calls on a text that it formats, and on an index: no names of Python's."""


class AnswerNames:
    """The wrapped functions of one worker."""

    def __init__(self, watch: AnswerCode) -> None:
        self.watch = watch
        self._wrapped = set[tuple[str, str]]()
        self.builtins: dict[str, Any] = {FORMAT: self.see_format, INDEX: self.see_index}
        """By the names by which a test's code finds them."""
        for name, at in BUILTIN.items():
            self.builtins[name] = self._wrap(getattr(sys.modules["builtins"], name), at, False)

    def wrap_modules(self) -> None:
        """Wrap what has been loaded since the last time."""
        for module, functions in FUNCTIONS.items():
            for path, at in functions.items():
                if module in sys.modules and (module, path) not in self._wrapped:
                    self._wrapped.add((module, path))
                    kind, _, name = path.rpartition(".")
                    holder: Any = sys.modules[module]
                    holder = getattr(holder, kind) if kind else holder
                    direct = module in USED_BY_LIBRARIES
                    setattr(holder, name, self._wrap(getattr(holder, name), at, direct))

    def look(self, name: object) -> None:
        """A test looks up what has this name: tell, unless that stands in its code."""
        if isinstance(name, str) and self.watch.is_watching:
            code = code_of_data(CALLER(1))
            in_code = names_in(code) if code else set[str]()
            if name not in in_code and not {*re.split(r"[.:]", name)} <= in_code:
                self.watch.tell()

    def see_index(self, name: object) -> object:
        """The name that a test is about to look up in a namespace."""
        self.look(name)
        return name

    def see_format(self, text: object) -> object:
        """The text that a test is about to format."""
        if isinstance(text, str) and REACHES.search(text):
            self.look(text)
        return text

    def _wrap(self, function: Callable[..., Any], at: int, direct: bool) -> Callable[..., Any]:
        """The function, which looks at its names from `at` on: with `direct`, where no library
        calls it.
        """

        @wraps(function)
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            looks = not (direct and is_library(CALLER(1).f_code.co_filename))
            for name in [*arguments[at:], *keywords.values()] if looks else []:
                self.look(name)
            return function(*arguments, **keywords)

        return wrapped


class Seer(ast.NodeTransformer):
    """Has the texts that a test formats, and the names that it looks up in a namespace, go through
    AnswerNames, but for literals.
    """

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`x.format` becomes `see(x).format`."""
        self.generic_visit(node)
        if node.attr in ("format", "format_map"):
            node.value = call_of(FORMAT, node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`vars(x)[name]` becomes `vars(x)[see(name)]`."""
        self.generic_visit(node)
        space = node.value.func if isinstance(node.value, ast.Call) else node.value
        if SPACES & {getattr(space, "id", ""), getattr(space, "attr", "")}:
            node.slice = call_of(INDEX, node.slice)
        return node


def call_of(name: str, value: ast.expr) -> ast.expr:
    """A call of that name with the value, in its place."""
    if isinstance(value, ast.Constant):
        return value
    function = ast.copy_location(ast.Name(name, ast.Load()), value)
    return ast.copy_location(ast.Call(function, [value], []), value)


def with_names_watched(source: str) -> str | ast.Module:
    """Source in which what looks up names by syntax is watched. Raises SyntaxError."""
    if not any(word in source for word in WORDS) or not BY_SYNTAX.search(source):
        return source
    return Seer().visit(ast.parse(source))  # type: ignore[no-any-return]
