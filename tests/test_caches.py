"""docs/caches.md and docs/other-caches.md list every cache of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "assay"
PAGES = [PACKAGE.parent / "docs" / name for name in ("caches.md", "other-caches.md")]
DECORATORS = {"lru_cache", "cache", "cached", "bounded_cache"}
CLASSES = {"BoundedDict", "SharedWork", "WeakKeyDictionary", "WeakValueDictionary"}
DICTS = {"dict", "OrderedDict", "defaultdict", *CLASSES}


def name_of(node: ast.AST) -> str:
    """The last name of `functools.lru_cache(8)`, `dict[str, int]()` or `cache`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_changed(name: str, tree: ast.Module) -> bool:
    """Whether a function of the module puts something into a module's dict."""
    functions = (node for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))  # fmt: skip
    for node in (part for function in functions for part in ast.walk(function)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            changed = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = node.func.value if node.func.attr in ("setdefault", "update") else node
        else:
            continue
        if name_of(changed) == name:
            return True
    return False


def caches_in(tree: ast.Module) -> Iterator[str]:
    """The names of what looks like a cache: decorated functions, dicts of a module that functions
    fill, bounded dicts, classes named so, and the folders of the user's cache.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(name_of(decorator) in DECORATORS for decorator in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.ClassDef):
            if node.name.endswith("Cache") or any(name_of(base) in CLASSES for base in node.bases):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name, value = name_of(target), node.value
            is_of_module = node in tree.body and is_changed(name, tree)
            is_dict = isinstance(value, ast.Dict) or name_of(value) in DICTS
            by_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Call)
            by_decorator = by_call and name_of(value) in DECORATORS
            if name_of(value) in CLASSES or (is_of_module and is_dict) or by_decorator:
                yield name
        elif isinstance(node, ast.Call) and name_of(node) == "cache_folder":
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            yield from (f"{folder}/" for folder in names if isinstance(folder, str))


def listed() -> set[str]:
    """What the page lists: `file.py: name`."""
    return set(re.findall(r"`([\w/]+\.py: [\w/]+)`", text_of_pages()))


def text_of_pages() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def test_the_page_lists_every_cache_of_the_package_and_no_other() -> None:
    caches = {
        f"{file.relative_to(PACKAGE).as_posix()}: {name}"
        for file in PACKAGE.rglob("*.py")
        for name in caches_in(ast.parse(file.read_text()))
    }
    assert sorted(caches - listed()) == [], "say in docs/caches.md what they are"
    assert sorted(listed() - caches) == [], "these are gone; take them out of docs/caches.md"


def test_each_row_of_the_page_says_key_bound_and_who_clears_it() -> None:
    rows = [line for line in text_of_pages().splitlines() if re.match(r"\| `[\w/]+\.py: ", line)]
    assert len(rows) > 20
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert all(cells), row


@pytest.mark.parametrize(
    "source",
    [
        "@lru_cache(8)\ndef name(): ...",
        "@functools.cache\ndef name(): ...",
        "class A:\n    @functools.lru_cache\n    def name(self): ...",
        "@bounded_cache(1, 2)\ndef name(): ...",
        "name = {}\ndef f(key):\n    name[key] = 1",
        "name: dict[str, int] = dict()\ndef f(key):\n    name.setdefault(key, 1)",
        "name = OrderedDict[str, int]()\ndef f(key):\n    name[key] += 1",
        "class A:\n    def f(self):\n        self.name: BoundedDict[int, str] = BoundedDict(1, 2)",
        "name = lru_cache(8)(load)",
        "class name(SharedWork[str, int]): ...",
    ],
)
def test_each_form_of_a_cache_is_noticed(source: str) -> None:
    assert list(caches_in(ast.parse(source))) == ["name"]


def test_a_table_that_no_function_fills_is_no_cache() -> None:
    assert list(caches_in(ast.parse("TABLE = {1: 2}\ndef f(): return TABLE[1]"))) == []
    assert list(caches_in(ast.parse("x = cache_folder('trees')"))) == ["trees/"]
    assert list(caches_in(ast.parse("class FileCache: ..."))) == ["FileCache"]
