"""Identifies the code that judges. Every module that a judging process can import counts, and so do
the files that such modules read: a change of any of them may change a verdict.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import assay
from assay.bounded import bounded_cache
from assay.content import digest_of
from assay.syntax_trees import parse_alone

WHOLE = ("judge", "languages", "sandbox")
"""Folders of which every file counts. Processes of the sandbox are started by a module's name,
kinds and languages are found by looking into their folders, and programs get drivers as text."""
OURS = re.compile(r"assay(?:\.[A-Za-z_]\w*)+")


@cache
def installed() -> list[str]:
    """The versions of Python and of the installed packages."""
    records = (
        record.name
        for folder in sys.path
        for pattern in ("*.dist-info", "*.egg-info")  # Debian's packages have the latter
        for record in Path(folder).glob(pattern)
    )
    return [sys.version, *sorted(records)]


def edition() -> bytes:
    """Identifies this judge: its source, and the versions of Python and the installed packages."""
    return edition_of(Path(assay.__file__).parent)


def edition_of(package: Path) -> bytes:
    """The edition of a copy of assay. Files are looked at each time, and read when they may have
    changed.
    """
    digest = hashlib.blake2b("\n".join(installed()).encode(), digest_size=16)
    for file in sorted(deciding_files(package)):
        digest.update(f"\n{file.relative_to(package).as_posix()} {digest_of(file)}".encode())
    return digest.digest()


def deciding_files(package: Path) -> set[Path]:
    """The files of WHOLE, the modules that those import, and so on, with the data beside each. A
    module counts even where only a function or a type checker imports it.
    """
    files = {file for folder in WHOLE for file in _files_below(package / folder)}
    to_read, names = [file for file in files if file.suffix == ".py"], set[str]()
    while to_read:
        file = to_read.pop()
        module = ".".join((assay.__name__, *file.relative_to(package).with_suffix("").parts))
        for name in {*_names_in(file, digest_of(file), module)} - names:
            names.add(name)
            new = {*_files_of(package, name)} - files
            files |= new
            to_read += [path for path in new if path.suffix == ".py"]
    return files


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith("."):
            yield path


def _files_of(package: Path, name: str) -> Iterator[Path]:
    """The files of a module and of the packages around it, with the data in their folders."""
    folder, *parts = package, *name.split(".")[1:]
    yield folder / "__init__.py"
    for part in parts:
        if (module := folder / f"{part}.py").is_file():
            yield module
        folder = folder / part
        if part in WHOLE or not (folder / "__init__.py").is_file():
            break
        yield folder / "__init__.py"
        yield from (path for path in _files_below(folder) if path.suffix != ".py")


@bounded_cache(1024, 4)
def _names_in(file: Path, digest: str, module: str) -> tuple[str, ...]:
    """The names of ours that a module imports, or has as a text, as what starts a process does."""
    names = set[str]()
    package = module.split(".")[:-1]
    for node in ast.walk(parse_alone(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{start}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return tuple(sorted(filter(OURS.fullmatch, names)))
