"""One file in a folder is one plug-in: folders are imported on first use, and a typo gets a "did
you mean".
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Generic, TypeVar

from assay.errors import SettingsError

T = TypeVar("T")


def suggest(name: str, known: list[str]) -> str:
    """A clause that offers the nearest known name, or lists them all: `did you mean 'grpo'?`."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return (
        f"did you mean {close[0]!r}?"
        if close
        else " ".join(f"known: {', '.join(sorted(known))}".split())
    )


class Registry(Generic[T]):
    """Plug-ins of one kind by name.

    `kind` is the singular word of messages; `package` the folder whose modules register themselves
    when imported.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._items: dict[str, T] = {}
        self._loaded = False

    def add(self, name: str, item: T) -> T:
        """Register `item` under `name`. Raises SettingsError when the name is taken by something
        else.
        """
        if name in self._items and self._items[name] is not item:
            raise SettingsError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._items[name] = item
        return item

    def register(self, item: T) -> T:
        """What a plug-in folder offers as its decorator: `add` under the function's own name."""
        return self.add(getattr(item, "__name__", str(item)), item)

    def __getitem__(self, name: str) -> T:
        self._load()
        if name not in self._items:
            raise SettingsError(f"unknown {self.kind} {name!r}; {suggest(name, list(self._items))}")
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._items))

    def summary(self, name: str) -> str:
        """The first line of the plug-in's docstring, or of its module's."""
        item = self[name]
        doc = inspect.getdoc(item)
        module = inspect.getmodule(item)
        return (doc or (module.__doc__ if module else None) or "").strip().split("\n")[0]

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            folder = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(folder.__path__):
                importlib.import_module(f"{self.package}.{module.name}")


def load_plugins(paths: tuple[str, ...], beside: Path) -> None:
    """Import the user's plug-in files; a relative path is looked for beside the settings file.

    Raises SettingsError when a file is missing or does not import.
    """
    for path in paths:
        file = (beside / path).resolve()
        name = f"assay_plugin_{file.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:12]}"
        if not file.is_file():
            raise SettingsError(
                f"plug-in {path!r} not found at {file}; mend `plugins` in the settings"
            )
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise SettingsError(f"plug-in {path!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (
            Exception
        ) as error:  # a plug-in is the user's code: whatever it raises is theirs to mend
            del sys.modules[name]
            raise SettingsError(f"plug-in {path!r} does not import: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The error's class and the beginning of its message on a single line: `ZeroDivisionError:
    division by zero`.
    """
    return shorten(f"{type(error).__name__}: {error}", 250, placeholder=" ...")
