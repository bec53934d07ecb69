"""Doctests of source files: the examples stand in the file that a change is to repair. So the file
is no test file, and the examples that count are those of the right change, or of the tree as it is.
"""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from assay.judge.canaries import Canary, parsed

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def module_names(path: str) -> list[str]:
    """What the module of a file may be called, by the folders that imports search."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return [".".join(parts[at:]) for at in range(len(parts))]


def place(test: str) -> tuple[str, list[str]] | None:
    """The file of a test whose id may be that of a doctest, such as `calc.py::calc.Number.add`, and
    the names in it that lead to the examples.
    """
    path, _, name = test.partition("::")
    if not path.endswith(".py") or "::" in name or "[" in name:
        return None
    for module in module_names(path):
        if name == module or name.startswith(f"{module}."):
            return path, [part for part in name[len(module) :].split(".") if part]
    return None


def docstrings(tests: Iterable[str], sources: Mapping[str, str]) -> dict[str, str]:
    """The docstrings of those tests that are doctests of these sources, by path."""
    trees = {path: parsed(source) for path, source in sources.items()}
    texts = dict[str, str]()
    for test in tests:
        if (names := place(test)) and names[0] in trees:
            text = docstring(trees[names[0]], names[1])
            if text and ">>>" in text:
                texts[test] = text
    return texts


def docstring(module: ast.Module, names: Sequence[str]) -> str | None:
    """The docstring of a class or function that is reached by names; the last of that name. Of
    `__test__` and a key, what the module's dictionary of that name has there.
    """
    if names[:1] == ["__test__"]:
        return _listed(module, ".".join(names[1:]))
    node: Documented = module
    for name in names:
        inside = [
            child for child in _definitions(node)
            if child.name == name and isinstance(node, ast.Module | ast.ClassDef)
        ]  # fmt: skip
        if not inside:
            return None
        node = inside[-1]
    return ast.get_docstring(node, clean=False)


def _listed(module: ast.Module, key: str) -> str | None:
    """The text under a key of the module's dictionary `__test__`, or the docstring of what it
    names there.
    """
    text = None
    for statement in module.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="__test__")], value=ast.Dict() as table)
                | ast.AnnAssign(target=ast.Name(id="__test__"), value=ast.Dict() as table)
            ):  # fmt: skip
                values = dict(zip(map(_constant, table.keys), table.values, strict=True))
                value = values.get(key)
                names = ast.unparse(value).split(".") if value else []
                text = _constant(value) or (docstring(module, names) if names else None)
    return text


def _constant(node: ast.expr | None) -> str | None:
    """The text that an expression is; None where it is another one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _definitions(node: ast.AST) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The definitions in a block, those below `if`, `try` and `with` too."""
    inside = list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]()
    nodes = list(ast.iter_child_nodes(node))
    for child in nodes:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside.append(child)
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            nodes += ast.iter_child_nodes(child)
    return inside


def examples(text: str) -> list[doctest.Example]:
    """The examples of a docstring; none where they cannot be read."""
    try:
        return doctest.DocTestParser().get_examples(text)
    except ValueError:  # an option of pytest's, or a fault that pytest reports
        return []


def doctest_canary(test: str, text: str, random: Random) -> tuple[Canary, str] | None:
    """The canary of a doctest, and its docstring: that of the test, with an example more that
    expects what nothing prints. None where no example prints anything.
    """
    word = f"{random.getrandbits(40):x}"
    for example in reversed(examples(text)):
        if example.want and not example.exc_msg and not example.options:
            first, *rest = example.source.splitlines()
            lines = [f">>> {first}", *(f"... {line}" for line in rest), word]
            canary = Canary(test, f"{test.partition('::')[0]}::{word}")
            return canary, "\n".join([text, "", *lines, ""])
    return None
