"""How a run or a command names tasks: a set and its split, or rows of your own by a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from assay.errors import SettingsError
from assay.registry import registry_of

ROWS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet")
"""Endings of files that hold rows."""
HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""The name of a data set on the hub: `owner/name`."""
COLUMNS = re.compile(r"(?:,\w+=[^,]*)+\Z")
SPLIT = re.compile(r":([\w.@-]+(?:/[\w.@-]*)?)\Z")
TABLE = 'write { path = "rows.parquet", columns = { prompt = "question" } }'


@dataclass(frozen=True, slots=True)
class DataName:
    """Rows of your own, as they are named: `data/*.parquet:train,prompt=question`."""

    path: str
    """A file, a folder, a glob, or a name on the hub."""
    split: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    """By the field of a task, the column that holds it; `a.b` is the member `b` of the column `a`.
    """


def data_name(text: str) -> DataName:
    """What a text names: PATH, PATH:SPLIT, and `,FIELD=COLUMN` behind either."""
    tail = COLUMNS.search(text)
    # of a file's own name: `runs/rows,lr=1.jsonl`
    if tail and text.endswith(ROWS) and not text[: tail.start()].endswith(ROWS):
        tail = None
    body = text[: tail.start()] if tail else text
    pairs = (pair.partition("=") for pair in tail[0][1:].split(",")) if tail else ()
    columns = {name: unquote(column) for name, _, column in pairs}
    split = None if body.endswith(ROWS) else SPLIT.search(body)
    path = body[: split.start()] if split else body
    return DataName(path, split[1] if split else "", columns)


def is_glob(path: str) -> bool:
    """Whether a path stands for all files of a pattern."""
    return any(sign in path for sign in "*?[")


def names_files(text: str) -> bool:
    """Whether a text, alone or behind a task set's name, names files of rows: a split does not."""
    path = data_name(text).path
    return path.endswith(ROWS) or is_glob(path)


def is_path(text: str) -> bool:
    """Whether a text names files of rows, or a folder of them as only paths are written."""
    path = data_name(text).path
    return names_files(text) or path in (".", "..") or is_rooted(path)


def is_rooted(path: str) -> bool:
    """Whether it begins as paths do, and names do not."""
    return path.startswith(("/", "./", "../", "~"))


def split_spec(spec: str) -> tuple[str, str]:
    """A task set's name and its split or path: of `mbpp:train`, `jsonl:my.jsonl` or `my.jsonl`.

    Raises SettingsError for a file that holds no rows, by its name.
    """
    name, _, split = spec.partition(":")
    path = data_name(spec).path
    if re.fullmatch(r"\w*", name) or not (is_path(spec) or "/" in path or "." in path):
        return name, split
    if "/" not in path and not is_path(spec) and not Path(path).is_dir():
        raise SettingsError(
            f"{path} is no file of tasks; write rows to a .jsonl, .json, .csv or .parquet file, or"
            " name a folder that holds such files"
        )
    return "jsonl", spec


def require_set(name: str) -> None:
    """Raises SettingsError unless there is such a task set."""
    try:
        registry_of("tasks").require(name)
    except SettingsError:
        if name and Path(name).is_dir():
            raise SettingsError(
                f"unknown task set {name!r}; for the folder of that name, write ./{name}"
            ) from None
        raise


def parts_of(spec: str) -> tuple[str, str, str]:
    """What stands before the path in a spec, the path, and what is behind it. The path is empty
    where the spec names a split.
    """
    name, split = split_spec(spec)
    if name != "jsonl" and not names_files(split):
        return spec, "", ""
    path = data_name(split).path
    before = spec.removesuffix(split)
    return before, path, split[len(path) :]


def own_data(spec: str) -> DataName | None:
    """The rows of your own that a spec names; None for a split of a task set."""
    name, split = split_spec(spec)
    return data_name(split) if split and (name == "jsonl" or names_files(split)) else None


def spec_of(table: Mapping[str, Any]) -> str:
    """The spec that a table of settings says: `{ path = ..., split = ..., columns = {...} }`.
    Raises SettingsError.
    """
    path, split, columns = (table.get(key) for key in ("path", "split", "columns"))
    if others := table.keys() - {"path", "split", "columns"}:
        raise SettingsError(f"a task set has no key {min(others)!r}; {TABLE}")
    columns = {} if columns is None else columns
    if not isinstance(columns, Mapping):
        raise SettingsError(f"columns = {columns!r:.80} is no table; {TABLE}")
    texts = [path, split or "", *columns.values()]
    names = all(re.fullmatch(r"\w+", name) for name in columns)
    if not path or not names or not all(isinstance(text, str) for text in texts):
        raise SettingsError(f"a task set is {dict(table)!r:.80}; {TABLE}")
    signs = {ord("%"): "%25", ord(","): "%2C"}
    pairs = "".join(f",{name}={column.translate(signs)}" for name, column in columns.items())
    return f"{path}{f':{split}' if split else ''}{pairs}"
