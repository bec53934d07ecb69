"""Plug-ins: one file in a folder is one plug-in, found by name without importing it; a typo gets a
"did you mean". Installed packages name theirs as entry points, and users the paths of files.
"""

import ast
import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import shorten
from traceback import walk_tb
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from assay.errors import AssayError, SettingsError
from assay.plugin_code import PLUGIN, Loader, package_of
from assay.suggestions import suggest
from assay.syntax_trees import parse_alone

log = logging.getLogger(__name__)
T = TypeVar("T")
KINDS = {
    "algorithms": "algorithm", "callbacks": "callback", "choices": "choice", "engines": "engine",
    "environments": "environment", "languages": "language",
    "rewards": "reward", "tasks": "task set",
}  # fmt: skip
"""Folders of plug-ins, and what one plug-in is called."""
KINDS_OF_TESTS = "kinds"
"""The folder of kinds of tests, which have no registry: their classes say what they judge."""
GROUP = "assay"
"""The entry points of installed packages: `"rewards.brevity" = "my_package.brevity"`."""


class Shipped(NamedTuple):
    """A plug-in that comes with assay, as its source shows it."""

    module: str
    summary: str


@cache
def shipped(package: str, kind: str) -> dict[str, Shipped]:
    """Returns the plug-ins in the folder of `package` by name. They are read from their source
    without an import.

    A plug-in is a function under a decorator with the name of its kind: `@reward`,
    `@algorithm(Settings)`, `@task_set`, `@environment_with(script)`. Or it is data, and its module
    says what it is: `language("rust", Language(...))`.
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
                node: Any = parse_alone(function).body[0]
                text = ast.get_docstring(node) or ast.get_docstring(parse_alone(source))
                plugins[node.name] = Shipped(f"{package}.{module}", first_sentence(text))
            for name in as_data.findall(source):
                text = ast.get_docstring(parse_alone(source))
                plugins[name] = Shipped(f"{package}.{module}", first_sentence(text))
    return dict(sorted(plugins.items()))


class Installed(NamedTuple):
    """A plug-in of an installed package, as the package's entry point names it."""

    module: str
    package: str
    summary: str
    """What the package says of itself."""


@cache
def installed(folder: str) -> dict[str, Installed]:
    """Returns the plug-ins of installed packages for a folder, by name. It imports nothing of them.

    Raises SettingsError where two packages have one of the same name.
    """
    from importlib.metadata import entry_points  # slow, and few names need it

    plugins: dict[str, Installed] = {}
    for entry in entry_points(group=GROUP):
        place, _, name = entry.name.partition(".")
        package = entry.dist.name if entry.dist else "?"
        if place not in (*KINDS, KINDS_OF_TESTS) or not name.isidentifier():
            places = ", ".join([*KINDS, KINDS_OF_TESTS])
            _warn(f"the package {package}: no plug-in is {entry.name!r}; write one of {places},"
                  " a dot and its name")  # fmt: skip
        elif place != folder:
            continue
        elif place in KINDS and name in shipped(f"assay.{place}", KINDS[place]):
            _warn(f"the package {package}: {KINDS[place]} {name!r} comes with assay; rename it")
        elif name in plugins:
            raise SettingsError(
                f"{KINDS.get(folder, 'kind')} {name!r} is in two packages, {plugins[name].package}"
                f" and {package}; uninstall one of them"
            )
        else:
            summary = str(entry.dist.metadata["Summary"] or "") if entry.dist else ""
            plugins[name] = Installed(entry.module, package, summary)
    return dict(sorted(plugins.items()))


@cache
def _warn(text: str) -> None:
    """Log a warning once."""
    log.warning("%s", text)


def import_installed(folder: str, name: str) -> None:
    """Imports the module of an installed package that registers a plug-in. Raises SettingsError
    where it cannot be imported.
    """
    module, package, _ = installed(folder)[name]
    try:
        importlib.import_module(module)
    except AssayError:
        raise
    except (Exception, SystemExit) as error:  # the package's own code
        raise SettingsError(
            f"{KINDS.get(folder, 'kind')} {name!r} of the package {package}:"
            f" {one_line(error)}; fix or uninstall it"
        ) from error


class Registry(Generic[T]):
    """Holds plug-ins of one kind by name. The module of a plug-in is imported when it is used.

    `kind` is the word for one plug-in, in messages and as its decorator. `package` is the folder of
    those that come with assay. An installed package's plug-in has no name of one of these.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._folder = package.rpartition(".")[2]
        self._items: dict[str, T] = {}
        _REGISTRIES[kind, package] = self

    def add(self, name: str, item: T) -> T:
        """Registers `item` under `name`. Raises SettingsError if another plug-in has that name."""
        elsewhere = self._shipped.get(name) or installed(self._folder).get(name)
        module = elsewhere.module if elsewhere else __name__
        if self._items.get(name, item) is not item or module not in sys.modules:
            raise SettingsError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._items[name] = item
        if name not in self._shipped:
            _ADDED.append(name)
        return item

    def register(self, item: T) -> T:
        """Registers a function as a plug-in. Settings name it by the function's name."""
        return self.add(getattr(item, "__name__", str(item)), item)

    def require(self, name: str) -> None:
        """Raises SettingsError unless there is such a plug-in."""
        if not (name in self._items or name in self._shipped or name in installed(self._folder)):
            raise SettingsError(f"unknown {self.kind} {name!r}; {suggest(name, self)}")

    def __getitem__(self, name: str) -> T:
        self.require(name)
        if name not in self._items and name in self._shipped:
            importlib.import_module(self._shipped[name].module)
        elif name not in self._items:
            import_installed(self._folder, name)
            if name not in self._items:
                module, package, _ = installed(self._folder)[name]
                raise SettingsError(
                    f"the package {package} has no {self.kind} {name!r}: its module {module}"
                    " registers none of that name; fix or uninstall it"
                )
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        names = self._items.keys() | self._shipped.keys() | installed(self._folder).keys()
        return iter(sorted(names))

    def summary(self, name: str) -> str:
        """Returns the first sentence of the plug-in's docstring, or of its module's."""
        if name in self._shipped:
            return self._shipped[name].summary
        if name not in self._items and name in installed(self._folder):
            _, package, summary = installed(self._folder)[name]
            return f"{summary or 'No summary'} (the package {package})."
        item = self[name]
        if title := getattr(item, "title", ""):
            return f"{title}."
        module = inspect.getmodule(item)
        return first_sentence(inspect.getdoc(item) or (module.__doc__ if module else ""))

    @property
    def _shipped(self) -> dict[str, Shipped]:
        return shipped(self.package, self.kind)


_REGISTRIES: dict[tuple[str, str], Registry[Any]] = {}
_ADDED: list[str] = []
"""The names that users' plug-ins have registered, in order."""


def registry_of(folder: str) -> Registry[Any]:
    """Returns the plug-ins of a folder in KINDS, to list them or to check a name. It does not
    import the folder, which may import torch.
    """
    kind, package = KINDS[folder], f"assay.{folder}"
    return _REGISTRIES.get((kind, package)) or Registry(kind, package)


def load_plugins(paths: Iterable[str | Path], beside: Path = Path()) -> None:
    """Imports the user's plug-in files. Relative paths are relative to `beside`.

    Raises SettingsError for a file that is missing, cannot be imported or registers nothing.
    """
    for path in map(str, paths):
        file = Path(os.path.realpath(beside / path))  # resolve() fails on links in a circle
        name = f"{package_of(file.parent)}.{file.stem.replace('.', '_')}"
        if name in sys.modules:
            continue
        if not file.is_file():
            raise SettingsError(f"plug-in {path!r} not found; write the path of a Python file")
        if file.suffix != ".py":
            raise SettingsError(f"plug-in {path!r} is not a Python file")
        spec = importlib.util.spec_from_file_location(name, file, loader=Loader(name, str(file)))
        if spec is None or spec.loader is None:
            raise SettingsError(f"plug-in {path!r} is not a Python file")
        added = len(_ADDED)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except SettingsError:
            del sys.modules[name]
            raise
        except (Exception, SystemExit) as error:  # a plug-in is the user's code
            del sys.modules[name]
            line = plugin_line(error)
            if isinstance(error, OSError) and not line:  # the file itself, not what its code opens
                raise SettingsError(
                    f"plug-in {path} cannot be read ({error.strerror}); make it readable, or name"
                    " another file"
                ) from None
            raise SettingsError(f"{line or path}: {one_line(error)}") from error
        if len(_ADDED) == added and not _holds_registered(module):
            del sys.modules[name]
            raise SettingsError(
                f"plug-in {path!r} registers nothing; it should hold a function under @reward,"
                " @algorithm(...), @callback, @choice, @engine, @environment or @task_set, a"
                " language(...), or a Kind"
            )


def _holds_registered(module: ModuleType) -> bool:
    """Whether a module has something in it that another of the user's has registered, or that
    registers itself, as a kind of tests does.
    """
    items = [item for registry in _REGISTRIES.values() for item in registry._items.values()]
    objects = [thing for thing in vars(module).values() if _is_of_user(thing)]
    return any(
        getattr(thing, "is_plugin", False) or any(thing is item for item in items)
        for thing in objects
    )


def _is_of_user(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith(PLUGIN)


def plugin_line(error: BaseException | None) -> str:
    """Returns the line of a plug-in file where `error` was raised, as `my_reward.py, line 3`. It is
    empty if no plug-in has to do with it.
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
    """Returns where a plug-in's function begins, as `plug-in my_reward.py, line 3: `. It is empty
    for our own.
    """
    inner = inspect.unwrap(getattr(function, "func", function))
    code = getattr(inner, "__code__", None)
    if code is None or not inner.__module__.startswith(PLUGIN):
        return ""
    return f"plug-in {code.co_filename}, line {code.co_firstlineno}: "


def one_line(error: BaseException) -> str:
    """Returns the error's class and the beginning of its message on a single line, as
    `ZeroDivisionError: division by zero`.
    """
    return shorten(f"{type(error).__name__}: {error}", 250, placeholder=" ...")


def first_sentence(text: str | None) -> str:
    """Returns the first sentence of a docstring, in one line."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".") + "." if paragraph else ""
