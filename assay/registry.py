"""Plug-ins: one file in a folder is one plug-in, found by name without importing it; a typo gets a
"did you mean".
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from textwrap import shorten
from traceback import walk_tb
from typing import Any, Generic, NamedTuple, TypeVar

from assay.errors import SettingsError

T = TypeVar("T")
KINDS = {
    "algorithms": "algorithm", "environments": "environment", "languages": "language",
    "rewards": "reward", "tasks": "task set",
}  # fmt: skip
"""Folders of plug-ins, and what one plug-in is called."""
PLUGIN = "assay_plugin_"
"""Names of modules that hold the user's plug-ins start with this."""


def suggest(name: str, choices: Iterable[str]) -> str:
    """A clause that offers the nearest known name, or lists them all: `did you mean 'grpo'?`.

    A name one edit away comes first, then one whose beginning is, then a similar one.
    """
    names = sorted(set(choices))
    name = name[: 2 * max(map(len, names), default=0)]  # a client's may have a million letters
    near = [word for word in names if is_one_edit(name, word)] or [
        word for word in names if len(name) > 2 and is_one_edit(name, word[: len(name) + 1])
    ]
    close = get_close_matches(name, near or names, n=1, cutoff=0 if near else 0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}".strip()


def is_one_edit(first: str, second: str) -> bool:
    """Whether `second` is `first` with one letter inserted, deleted or replaced, or with two
    neighbours swapped.
    """
    shorter = min(len(first), len(second))
    start = next((n for n in range(shorter) if first[n] != second[n]), shorter)
    tail, other = first[start:], second[start:]
    swapped = tail[:2] == other[1::-1] and tail[2:] == other[2:]
    return first != second and (swapped or tail[1:] in (other, other[1:]) or tail == other[1:])


class Shipped(NamedTuple):
    """A plug-in that comes with assay, as its source shows it."""

    module: str
    summary: str


@cache
def shipped(package: str, kind: str) -> dict[str, Shipped]:
    """The plug-ins in the folder of `package` by name, read from their source without an import.

    A plug-in is a function under a decorator with the name of its kind: `@reward`,
    `@algorithm(Settings)`, `@task_set`, `@environment_with(script)`. Or it is data, and its
    module says what it is: `language("rust", Language(...))`.
    """
    spec = importlib.util.find_spec(package)
    word = kind.replace(" ", "_")
    decorated = re.compile(
        rf"^@{word}(?:_with)?\b.*?^(?:async )?def .*?(?=^[^\s)]|\Z)", re.M | re.S
    )
    as_data = re.compile(rf'^{word}\("(\w+)"', re.M)
    plugins: dict[str, Shipped] = {}
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in [*Path(folder).glob("*.py"), *Path(folder).glob("*/__init__.py")]:
            module = file.parent.name if file.parent != Path(folder) else file.stem
            source = file.read_text(encoding="utf-8")
            for function in decorated.findall(source):  # whole files take five times as long
                node = ast.parse(function).body[0]
                text = ast.get_docstring(node) or ast.get_docstring(ast.parse(source))
                plugins[node.name] = Shipped(f"{package}.{module}", _first_sentence(text))
            for name in as_data.findall(source):
                text = ast.get_docstring(ast.parse(source))
                plugins[name] = Shipped(f"{package}.{module}", _first_sentence(text))
    return dict(sorted(plugins.items()))


class Registry(Generic[T]):
    """Plug-ins of one kind by name. The module of a plug-in is imported when it is used.

    `kind` is the word for one plug-in, in messages and as its decorator; `package` is the folder of
    those that come with assay.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._items: dict[str, T] = {}
        _REGISTRIES[kind, package] = self

    def add(self, name: str, item: T) -> T:
        """Register `item` under `name`. Raises SettingsError if another plug-in has that name."""
        module = self._shipped[name].module if name in self._shipped else __name__
        if self._items.get(name, item) is not item or module not in sys.modules:
            raise SettingsError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._items[name] = item
        return item

    def register(self, item: T) -> T:
        """Register a function as a plug-in, under its own name."""
        return self.add(getattr(item, "__name__", str(item)), item)

    def require(self, name: str) -> None:
        """Raises SettingsError unless there is such a plug-in."""
        if name not in self._items and name not in self._shipped:
            raise SettingsError(f"unknown {self.kind} {name!r}; {suggest(name, self)}")

    def __getitem__(self, name: str) -> T:
        self.require(name)
        if name not in self._items:
            importlib.import_module(self._shipped[name].module)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items.keys() | self._shipped.keys()))

    def summary(self, name: str) -> str:
        """The first sentence of the plug-in's docstring, or of its module's."""
        if name in self._shipped:
            return self._shipped[name].summary
        item = self[name]
        if title := getattr(item, "title", ""):
            return f"{title}."
        module = inspect.getmodule(item)
        return _first_sentence(inspect.getdoc(item) or (module.__doc__ if module else ""))

    @property
    def _shipped(self) -> dict[str, Shipped]:
        return shipped(self.package, self.kind)


_REGISTRIES: dict[tuple[str, str], Registry[Any]] = {}


def registry_of(folder: str) -> Registry[Any]:
    """The plug-ins of a folder in KINDS, to list them or to check a name. Does not import the
    folder, which may import torch.
    """
    kind, package = KINDS[folder], f"assay.{folder}"
    return _REGISTRIES.get((kind, package)) or Registry(kind, package)


def load_plugins(paths: Iterable[str | Path], beside: Path = Path()) -> None:
    """Import the user's plug-in files; relative paths are relative to `beside`.

    Raises SettingsError for a file that is missing or cannot be imported.
    """
    for path in map(str, paths):
        file = (beside / path).resolve()
        name = f"{PLUGIN}{file.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:12]}"
        if name in sys.modules:
            continue
        if not file.is_file():
            raise SettingsError(f"plug-in {path!r} not found; write the path of a Python file")
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise SettingsError(f"plug-in {path!r} is not a Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except SettingsError:
            del sys.modules[name]
            raise
        except (Exception, SystemExit) as error:  # a plug-in is the user's code
            del sys.modules[name]
            raise SettingsError(f"{plugin_line(error) or path}: {one_line(error)}") from error


def plugin_line(error: BaseException | None) -> str:
    """The line of a plug-in file where `error` was raised: `my_reward.py, line 3`. Empty if no
    plug-in has to do with it.
    """
    if error is None:
        return ""
    if isinstance(error, BaseExceptionGroup):
        return plugin_line(error.exceptions[0])
    if isinstance(error, SyntaxError) and error.filename:
        return f"plug-in {error.filename}, line {error.lineno}"
    frames = [
        f"plug-in {frame.f_code.co_filename}, line {line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(PLUGIN)
    ]
    return frames[-1] if frames else ""


def place_of(function: Any) -> str:
    """Where a plug-in's function begins: `plug-in my_reward.py, line 3: `. Empty for our own."""
    inner = inspect.unwrap(getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    if code is None or not inner.__module__.startswith(PLUGIN):
        return ""
    return f"plug-in {code.co_filename}, line {code.co_firstlineno}: "


def one_line(error: BaseException) -> str:
    """The error's class and the beginning of its message on a single line: `ZeroDivisionError:
    division by zero`.
    """
    return shorten(f"{type(error).__name__}: {error}", 250, placeholder=" ...")


def _first_sentence(text: str | None) -> str:
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".") + "." if paragraph else ""
