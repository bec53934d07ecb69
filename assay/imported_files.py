"""The files that a module of the user's imports from its own package, or from beside it: together
they are its code.
"""

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

from assay.syntax_trees import parse_alone


def imported_files(module: str, file: Path, packages: bool = False) -> dict[str, Path]:
    """By the names of their modules, the file of `module` and those that it and they import,
    anywhere in their code, late imports too.

    Of a module in a package, the modules of its outermost package count. Of another one, the files
    beside it count, and the packages beside it where `packages` says that they are its own: in a
    folder of installed packages they are not. An import whose name is computed is missed.
    """
    top, in_package = module.partition(".")[0], "." in module or file.stem == "__init__"
    root = Path(*file.parts[: -1 - module.count(".") - (file.stem == "__init__")])
    if _file_of(root, module) != file:
        return {module: file}  # another loader brought it
    files, names, tried = dict[str, Path](), [module], set[str]()
    while names:
        name = names.pop()
        is_own = name.partition(".")[0] == top if in_package else packages or "." not in name
        path = _file_of(root, name) if is_own and name not in tried else None
        tried.add(name)
        if path and (in_package or packages or path.stem != "__init__"):
            files[name] = path
            names += _imports(name, path)
    return files


def _file_of(root: Path, module: str) -> Path | None:
    place = root.joinpath(*module.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _imports(module: str, file: Path) -> Iterator[str]:
    """The names of what a file imports, and of the packages that hold it. `from a import b` gives
    `a.b`, which may be no module.
    """
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    try:
        tree = parse_alone(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            try:
                base = resolve_name(base, package)
            except ImportError:  # above the outermost package
                continue
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
