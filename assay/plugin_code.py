"""Loads the files of plug-ins with what lies beside them, and names their code by its content."""

import builtins
import hashlib
import importlib
import importlib.util
import logging
import os
import sys
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from assay.imported_files import imported_files

log = logging.getLogger(__name__)
PLUGIN = "assay_plugin_"
"""Names of modules that hold the user's plug-ins start with this."""


OTHERS = {"assay", *sys.stdlib_module_names} - {"__main__"}
"""Packages whose code is known by the editions of assay and Python."""


SOURCES: dict[str, bytes] = {}
"""The source of each module that is no part of assay, as it was when it was loaded."""
IMPORTED: dict[str, frozenset[str]] = {}
"""By module, those in SOURCES that it imports from its own package or from beside it."""


def source_of(module: str) -> bytes | None:
    """The source of a module that is no part of assay. None where it stands in no file, as in a
    notebook.
    """
    if module not in SOURCES:
        remember_source(module)
    return SOURCES.get(module)


def remember_source(module: str) -> None:
    """Read the source of a module that is being loaded, and of the files that it imports from its
    package or from beside it: they may be edited later.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.startswith(PLUGIN) or not file or not Path(file).is_file():
        return  # the loader has it, or nobody
    source = Path(file).read_bytes()
    if SOURCES.get(module) == source and module in IMPORTED:
        return  # another class of the same file
    SOURCES[module] = source
    spec = sys.modules[module].__spec__
    script = Path(file).stem if module == "__main__" else module
    files = imported_files(spec.name if spec else script, Path(file))
    for name, path in files.items():
        SOURCES.setdefault(name, path.read_bytes())
    IMPORTED[module] = frozenset(files)


def code_of(thing: Any) -> str:
    """Identifies the code of a class, with those that it extends, or of a function. It is empty for
    assay's own. Of a plug-in, all files of its folder count that plug-ins have loaded; of another
    module, its file and those that it imports from its package or from beside it. Code that stands
    in no file is another one each time.
    """
    others = modules_outside(thing)
    if not others:  # as nearly always
        return ""
    names, digests = set[str](), list[str]()
    for module in others:
        package = module.partition(".")[0]
        if package.startswith(PLUGIN):
            names |= {name for name in SOURCES if name.startswith(f"{package}.")}
        else:
            if module not in IMPORTED:
                remember_source(module)
            names |= {module, *IMPORTED.get(module, ())}
    for name in sorted(names):
        source = source_of(name)
        content = os.urandom(16) if source is None else hashlib.sha256(source).digest()
        place = name.partition(".")[2] if name.startswith(PLUGIN) else name
        digests.append(f"{place} {content.hex()}")
    return " ".join(digests)


@lru_cache(1024)
def modules_outside(thing: Any) -> tuple[str, ...]:
    """The modules of a class, with those that it extends, or of a function, that are no part of
    assay or Python. Each program asks this of several classes.
    """
    bases = getattr(thing, "__mro__", [thing])
    modules = {str(getattr(base, "__module__", "")) for base in bases}
    return tuple(module for module in modules if module.partition(".")[0] not in OTHERS)


class Loader(SourceFileLoader):
    """Runs a file whose imports, late ones too, look beside it for what is not installed."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file as it stands: bytecode may be of an older one with its size and
        time.
        """
        source = self.get_data(self.path)
        SOURCES[fullname] = source
        code: CodeType = self.source_to_code(source, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import_beside}
        super().exec_module(module)


class _Finder:
    """Finds the files beside plug-ins, as modules of the package that their folder is."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """The spec of a module of a plug-in's folder; None for any other module."""
        if not name.startswith(PLUGIN) or path is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.origin and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(name, spec.origin)
        return spec


def package_of(folder: Path) -> str:
    """The name of the package that holds the plug-ins of a folder and the files beside them: equal
    names in two folders are two modules.
    """
    name = f"{PLUGIN}{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
    if name not in sys.modules:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = importlib.util.module_from_spec(spec)
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
    importlib.invalidate_caches()
    return name


def _import_beside(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    """What `import` does in a plug-in and in the files beside it."""
    package = (globals or {}).get("__name__", "").partition(".")[0]
    first = name.partition(".")[0]
    if level or not package.startswith(PLUGIN) or not _is_beside(package, first):
        return builtins.__import__(name, globals, locals, fromlist, level)
    module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist, 0)
    return module if fromlist else sys.modules[f"{package}.{first}"]


@cache
def _is_beside(package: str, name: str) -> bool:
    """Whether a plug-in means the file beside it by `name`. The standard library and what is
    installed come first; another file of the working folder does not.
    """
    if name in sys.stdlib_module_names or name == "assay":
        return False
    folder = Path(sys.modules[package].__path__[0])
    beside = PathFinder.find_spec(f"{package}.{name}", [str(folder)])
    if beside is None:
        return False
    elsewhere = PathFinder.find_spec(
        name, [path for path in sys.path if Path(path).resolve() not in (Path.cwd(), folder)]
    )
    if elsewhere is None or elsewhere.origin is None:
        return True
    if beside.origin:
        log.warning(
            "plug-ins import %s from %s, not from %s beside them; rename that file",
            name, elsewhere.origin, beside.origin,
        )  # fmt: skip
    return False
