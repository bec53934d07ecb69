"""Settings files: TOML with a base, paths relative to the file, and the line of every setting."""

import os
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.config.model_names import is_tiny
from assay.errors import DataError, SettingsError
from assay.lines import source_lines
from assay.paths import read_bytes, real_path
from assay.task_specs import is_path, names_files, parts_of, spec_of

Table = dict[str, Any]
Place = tuple[str, ...]
"""The keys that lead to a setting: ("optimizer", "lr")."""
PACKAGE = Path(__file__).parent.parent
RECIPES = next((f for f in (PACKAGE, PACKAGE.parent) if (f / "recipes").is_dir()), PACKAGE)
"""The folder with recipes/: the package when it is installed, else the repository."""
PATHS = (
    "folder", "plugins", "policy.model", "tasks.train", "evaluate.tasks", "judge.verdict_cache",
    "algorithm.pairs", "algorithm.labels", "algorithm.teacher", "engine.python",
    "engine.weights_folder",
)  # fmt: skip
"""Settings that are paths, or may be."""
MODELS = ("policy.model", "algorithm.teacher")
"""Settings that name models, which may be folders."""
TASKS = ("tasks.train", "evaluate.tasks")
"""Settings that name task sets, each by a text or a table."""


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A settings file as it was read."""

    path: Path
    text: str
    table: Table
    """Paths in it are relative to the working directory."""

    def where(self, place: Place) -> str:
        """The file, and the line of the setting at `place`: `demo.toml, line 3`."""
        lines = source_lines(self.text)
        for number in range(1, len(lines) + 1):
            with suppress(ValueError, RecursionError):  # in the middle of a value of several lines
                if has(tomllib.loads("\n".join(lines[:number])), place):
                    return f"{self.path}, line {number}"
        return str(self.path)


def saved_settings(file: Path) -> Table:
    """The settings that a stage's config.toml keeps. Raises DataError where it cannot be read."""
    try:
        table = tomllib.loads(read_bytes(file).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{file} cannot be read: {why}") from None
    policy = table.get("policy", {})
    if not isinstance(policy, dict) or not isinstance(policy.get("model", ""), str):
        raise DataError(f"{file} cannot be read: policy.model is no text")
    if "model" not in policy:
        raise DataError(f"{file} cannot be read: it ends too early, before policy.model")
    return table


def saved_model(file: Path) -> str:
    """The model that a stage's config.toml names: an absolute path, or a name. Raises DataError."""
    model: str = absolute(saved_settings(file), file.parent)["policy"]["model"]
    return model


def read_files(path: Path) -> list[TomlFile]:
    """A settings file and its bases, nearest first. A path that does not exist may be the name of a
    recipe, whose paths are relative to the working directory.

    Raises SettingsError for a file that is missing, malformed or its own base.
    """
    files: list[TomlFile] = []
    while True:
        files.append(_read(path, files))
        base = files[-1].table.pop("base", None)
        if base is None:
            return files
        if not isinstance(base, str):
            raise SettingsError(
                f'{path}: `base` = {base!r} must be a path in quotes, such as base = "other.toml"'
            )
        path = files[-1].path.parent / expanded(base)


def _read(path: Path, above: list[TomlFile], folder: Path | None = None) -> TomlFile:
    """`above` are the files that led here, each through its `base`; paths are relative to `folder`,
    or to the file's.
    """
    source = f"{above[-1].path}: base {str(path)!r}" if above else f"settings file {path}"
    try:
        if real_path(path) in [real_path(file.path) for file in above]:
            raise SettingsError(f"{path} is its own base; correct `base`")
        text = read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
        table = tomllib.loads(text)
    except FileNotFoundError:
        recipes = {file.stem: file for file in (RECIPES / "recipes").glob("*.toml")}
        if str(path) in recipes and not above:
            return _read(recipes[str(path)], above, folder=Path())
        raise SettingsError(
            f"{source} not found; write the path of a TOML file, or a recipe:"
            f" {', '.join(sorted(recipes))}"
        ) from None
    except IsADirectoryError:
        raise SettingsError(f"{source} is a folder; write the path of a TOML file") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{source} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        why = error.strerror or error
        raise SettingsError(f"{source} cannot be read ({why}); choose another path") from None
    except (ValueError, RecursionError) as error:  # of tables that are too deep
        raise SettingsError(f"{source} cannot be read as TOML: {error}; correct the file") from None
    return TomlFile(path, text, _each_relative(at_home(table), folder or path.parent, _from_folder))


def at_home(table: Table) -> Table:
    """`table`, with paths that start with ~ in the user's home folder: a shell expands none after
    an `=`, and none in a file.
    """
    return _each_path(table, lambda _, path: expanded(path))


def expanded(path: str) -> str:
    """The path, in the user's home folder where it starts with ~."""
    return os.path.expanduser(path)  # noqa: PTH111  Path's raises where nobody has that home


def relative_to(folder: Path, table: Table) -> Table:
    """`table`, with paths that are relative to the working directory made relative to `folder`."""
    return _each_relative(table, Path(), lambda _, path: os.path.relpath(path, folder))


def absolute(table: Table, folder: Path) -> Table:
    """`table`, with paths that are relative to `folder` made absolute."""
    return _each_relative(table, folder, lambda folder, path: str(real_path(folder / path)))


def _from_folder(folder: Path, path: str) -> str:
    return path if folder == Path() else os.path.normpath(folder / path)


def _each_relative(table: Table, folder: Path, change: Callable[[Path, str], str]) -> Table:
    """`table` with `change` applied to every relative path; `folder` is what they are relative to.

    A model, a program or a folder of rows may be a name.
    """

    def changed(key: str, path: str) -> str:
        is_name = {
            "tasks": not (is_path(path) or (folder / path).is_dir()),
            "engine.python": "/" not in path,
            "models": path[:1] != "." and (is_tiny(path) or not (folder / path).exists()),
        }
        kind = "tasks" if key in TASKS else "models" if key in MODELS else key
        if Path(path).is_absolute() or is_name.get(kind):
            return path
        path = change(folder, path)
        is_folder = key in TASKS and not names_files(path) and "/" not in path
        may_be_name = key in MODELS or is_folder
        dots = "./" if may_be_name and path[:1] not in "./" else ""
        return f"{dots}{path}"

    return _each_path(table, changed)


def _each_path(table: Table, change: Callable[[str, str], str]) -> Table:
    """`table` with `change` applied to every setting that is a path, or may be, and its key. Task
    sets that are tables become texts.
    """

    def changed(value: Any, *place: str) -> Any:
        key = ".".join(place[2:] if place[0] == "stages" else place)
        if isinstance(value, dict) and key in TASKS:
            value = spec_of(value)
        if isinstance(value, dict):
            return {inner: changed(each, *place, inner) for inner, each in value.items()}
        if isinstance(value, list):
            return [changed(each, *place) for each in value]
        if key not in PATHS or not isinstance(value, str) or not value:
            return value
        before, path, after = parts_of(value) if key in TASKS else ("", value, "")
        return f"{before}{change(key, path) if path else ''}{after}"

    return {key: changed(value, key) for key, value in table.items()}


def has(table: object, place: Place) -> bool:
    """Whether there is a setting at `place` in a table of tables."""
    for key in place:
        if not isinstance(table, Mapping) or key not in table:
            return False
        table = table[key]
    return True


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted keys: {"rollout.top_k": 4}."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        values |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
        )
    return values
