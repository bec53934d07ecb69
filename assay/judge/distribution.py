"""What importlib.metadata says of a repository that is not installed: its name, its version and its
entry points, as its own files have them.
"""

from __future__ import annotations

import configparser
import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 20
VERSION = re.compile(r"^__version__\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]+)['\"]", re.MULTILINE)
ARGUMENT = r"^\s*{}\s*=\s*['\"]([^'\"\n]+)['\"]"
"""An argument of `setup` in setup.py, where it is a text."""
UNKNOWN = "0.0.0"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
PEP_440 = re.compile(r"v?\d[A-Za-z0-9.!+_-]*")


class Project(NamedTuple):
    """What one file says; empty where it says nothing."""

    name: str = ""
    version: str = ""
    entry_points: Mapping[str, Mapping[str, str]] = {}
    python: str = ""
    requires: Sequence[str] = ()


def distribution(tree: Path, modules: Sequence[str]) -> dict[str, str]:
    """The files of a folder `NAME-VERSION.dist-info` for a tree, by path; none where it names no
    project. modules: the names of the tree's modules.
    """
    projects = [project for project in _projects(tree) if project]
    name = next((project.name for project in projects if NAME.fullmatch(project.name)), "")
    key = re.sub("[-_.]+", "_", name).lower()
    modules = sorted(modules, key=lambda module: module.lower() != key)
    versions = [project.version for project in projects] + [*_assigned(tree, modules)]
    version = next((text for text in versions if PEP_440.fullmatch(text)), UNKNOWN)
    if not name:
        return {}
    python = next((project.python for project in projects if project.python), "")
    requires = next((project.requires for project in projects if project.requires), ())
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] * bool(python)
    lines += [f"Requires-Dist: {text}" for text in requires]
    points: dict[str, dict[str, str]] = {}
    for project in reversed(projects):
        points |= {group: dict(entries) for group, entries in project.entry_points.items()}
    folder = f"{re.sub('[-_.]+', '_', name)}-{version}.dist-info"
    texts = {
        "METADATA": "\n".join(" ".join(line.split("\n")) for line in lines) + "\n\n",
        "top_level.txt": "".join(f"{module}\n" for module in modules),
        "entry_points.txt": "".join(
            "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""])
            for group, entries in points.items()
        ),
        "INSTALLER": "assay\n",
    }
    return {f"{folder}/{file}": text for file, text in texts.items()}


def _projects(tree: Path) -> Iterator[Project | None]:
    """What the files of a tree say, the surest first."""
    metadata = [tree / "PKG-INFO", *sorted(tree.glob("*.egg-info/PKG-INFO")),
                *sorted(tree.glob("src/*.egg-info/PKG-INFO"))]  # fmt: skip
    for file in metadata:
        headers = HeaderParser().parsestr(_text(file))
        yield Project(
            headers.get("Name", ""), headers.get("Version", ""),
            _ini(_text(file.with_name("entry_points.txt"))), headers.get("Requires-Python", ""),
            headers.get_all("Requires-Dist") or (),
        )  # fmt: skip
    with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError):
        yield _of_pyproject(tomllib.loads(_text(tree / "pyproject.toml")))
    settings = _ini(_text(tree / "setup.cfg"))
    facts, options = settings.get("metadata", {}), settings.get("options.entry_points", {})
    entries = {group: _ini(f"[x]\n{text}").get("x", {}) for group, text in options.items()}
    yield Project(facts.get("name", ""), facts.get("version", ""), entries)
    setup = _text(tree / "setup.py")
    yield Project(_argument("name", setup), _argument("version", setup))


def _argument(name: str, setup: str) -> str:
    match = re.search(ARGUMENT.format(name), setup, re.MULTILINE)
    return match[1] if match else ""


def _of_pyproject(settings: Mapping[str, Any]) -> Project | None:
    tool = _table(_table(settings, "tool"), "poetry")
    project = _table(settings, "project") or tool
    points = {group: _texts(entries) for group, entries in
              (_table(project, "entry-points") or _table(tool, "plugins")).items()}  # fmt: skip
    for group, key in (("console_scripts", "scripts"), ("gui_scripts", "gui-scripts")):
        points |= {group: scripts} if (scripts := _texts(_table(project, key))) else {}
    name, version, python = (
        str(project.get(key, "")) for key in ("name", "version", "requires-python")
    )
    requires = project.get("dependencies")
    listed = [str(text) for text in requires] if isinstance(requires, list) else []
    return Project(name, version, points, python, listed)


def _table(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = settings.get(key)
    return value if isinstance(value, dict) else {}


def _texts(entries: object) -> dict[str, str]:
    pairs = entries.items() if isinstance(entries, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


class _Settings(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        """Names keep their case."""
        return optionstr


def _ini(text: str) -> dict[str, dict[str, str]]:
    parser = _Settings(interpolation=None, strict=False, delimiters=("=",))
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def _assigned(tree: Path, modules: Sequence[str]) -> Iterator[str]:
    """The versions that the modules assign to `__version__`."""
    for module in modules:
        for home in (tree / "src" / module, tree / module):
            for file in [home.with_suffix(".py"), home / "__init__.py", *sorted(home.glob("*.py"))]:
                if (file.parent == home or file.suffix) and (match := VERSION.search(_text(file))):
                    yield match[1]


def _text(file: Path) -> str:
    """A file's text; empty where there is none that is short."""
    with contextlib.suppress(OSError):
        if file.is_file() and file.stat().st_size <= MOST_BYTES:
            return file.read_text("utf-8", errors="replace")
    return ""
