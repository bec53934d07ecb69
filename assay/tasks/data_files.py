"""Turns the name of a data set into rows: a file, a glob, a folder of shards or of `save_to_disk`,
or a name on the Hugging Face hub.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

from assay.content import digest_of
from assay.errors import DataError, SettingsError
from assay.extras import advice_on
from assay.hub import has_hub, own_copies_alone
from assay.paths import opened, read_bytes
from assay.registry import one_line
from assay.suggestions import suggest
from assay.task_specs import HUB, ROWS, DataName, is_glob, is_rooted, names_files

log = logging.getLogger(__name__)
T = TypeVar("T")
Places = Iterator[tuple[str, object]]
"""Rows, each behind its place: `my.jsonl, line 3`."""
Splits = Mapping[str, Sequence[Path]]
"""The files of each split, in the order of their rows."""
SPACE = re.compile(r"\s*+")
SHARD = re.compile(r"(?:^|[-_.])\d{1,6}(?:-of-\d+)?(?:-[0-9a-f]{8}-[\w-]+)?(?:\.\w+)?\Z")
"""What numbers a shard in the end of its name: `-00000-of-00002`, `_3`, and Spark's names."""
INNER_STARS = re.compile(r"(?<=[^/])\*\*+|\*\*+(?=[^/*])")
"""What pathlib refuses beside a name."""
NO_ROWS = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
"""Files that tools write beside rows, to describe them."""
DEPTH = 3
"""Levels of folders that are searched for rows: `data/config/split/0000.parquet`."""
BATCH = 100
"""Rows of a table that are in memory as Python's objects at once; a cell may have megabytes."""
NAMES = 10
"""Names of splits or files in an error."""


def read_data(name: DataName) -> Places:
    """The rows of a data set in the order of its files, which are sorted by name.

    Raises SettingsError for a split that is not there, DataError for what cannot be read.
    """
    if _is_on_hub(name):
        return _own_hub_rows(name)
    files = files_of(name)
    return read_file(files[0]) if len(files) == 1 else _read_shards(files)


def read_file(file: Path) -> Places:
    """The rows of one file: Parquet, Arrow or CSV by its ending, else JSON, gzip'd where the name
    ends in .gz. Raises DataError.
    """
    kinds = {".parquet": _parquet, ".arrow": _arrow, ".csv": _csv}
    return kinds.get(file.suffix, _json)(file)


def _read_shards(files: Sequence[Path]) -> Places:
    """The number of the shard is a part of each place: ids of rows that have none are made of it,
    and paths in a row are relative to its file.
    """
    for number, file in enumerate(files, start=1):
        for where, fields in read_file(file):
            yield f"{where} of shard {number}", fields


def content_of(name: DataName) -> str:
    """Identifies the files of a data set by their content; empty for one on the hub, of which the
    hub's client keeps a version. Raises as `read_data` does.
    """
    if _is_on_hub(name):
        return ""
    try:
        digests = [digest_of(file) for file in files_of(name)]
    except OSError:
        return ""  # reading it says why
    return sha256("\n".join([*digests, str(name.columns)]).encode()).hexdigest()


def files_of(name: DataName) -> list[Path]:
    """The files of a data set; none for one on the hub. Raises as `read_data` does."""
    path = Path(name.path)
    if _is_on_hub(name):
        return []
    if not _exists(path) and is_glob(name.path):
        matching = glob(name.path, recursive=True)  # noqa: PTH207  Path's takes no whole path
        files = sorted(map(Path, matching))
        rows = [file for file in files if file.name.endswith(ROWS) and file.is_file()]
        if not rows:
            raise DataError(
                f"{name.path} matches no file of rows ({', '.join(ROWS)}); correct the pattern"
            )
        base = Path(os.path.commonpath([file.parent for file in rows]))
        return [*_chosen(_by_name(rows, base), name)] if name.split else rows
    if _exists(path) and path.is_dir():
        return [*_chosen(_splits(path), name)]
    if not name.path.endswith(ROWS):
        what = "is no file of rows" if _exists(path) else "does not exist"
        raise DataError(f"{path} {what}; give a folder, or a file: {', '.join(ROWS)}")
    if name.split:
        raise SettingsError(f"{path} is one file, without splits; leave out ':{name.split}'")
    return [path]


def _chosen(splits: Splits, name: DataName) -> Sequence[Path]:
    """The files of the split that is named, or of the only one."""
    path, split = name.path, name.split
    names = list(splits)
    ends = [each for each in names if split and each.endswith(f"/{split}")]
    if split in splits:
        files = splits[split]
    elif split and len(ends) == 1:
        (split,) = ends
        files = splits[split]
    elif split:
        offer = suggest(split, (ends or names)[:NAMES])
        raise SettingsError(f"unknown split {split!r} of {path}; {offer}")
    elif len(names) == 1:
        files = splits[names[0]]
    elif names:
        listed = ", ".join(names[:NAMES]) + ", ..." * (len(names) > NAMES)
        raise SettingsError(f"{path} has the splits {listed}; choose one: {path}:{names[0]}")
    else:
        raise DataError(f"{path} is a folder without files of rows ({', '.join(ROWS)})")
    if not files:
        raise DataError(f"{path}: no file of the split {split or names[0]!r} is there")
    return files


def _splits(folder: Path) -> Splits:
    """The splits of a folder: as `save_to_disk` wrote it, as its README says, or by the names of
    its files.
    """
    if (folder / "dataset_dict.json").is_file():
        file = folder / "dataset_dict.json"
        names = _described(file, "splits")
        if not all(isinstance(name, str) and name[:1] != "." and "/" not in name for name in names):
            raise DataError(f"{file}: 'splits' are no names of folders here")
        return {name: _saved(folder / name) for name in names}
    if (folder / "state.json").is_file():
        return {"": _saved(folder)}
    if configs := _configs(folder):
        return _by_header(folder, configs)
    return _by_name(_files_below(folder), folder)


def _saved(folder: Path) -> list[Path]:
    """The Arrow files of a split that `save_to_disk` wrote."""
    entries = _described(folder / "state.json", "_data_files")
    names = [entry.get("filename") for entry in entries if isinstance(entry, dict)]
    if not all(isinstance(name, str) and "/" not in name for name in names):
        raise DataError(f"{folder / 'state.json'}: '_data_files' are no names of files here")
    return [folder / str(name) for name in names]


def _described(file: Path, key: str) -> list[Any]:
    """A list in a file that `save_to_disk` wrote. Raises DataError."""
    with _blaming(file):
        data = read_bytes(file)
    try:
        value = json.loads(data)[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {one_line(error)}; save the set anew") from None
    if not isinstance(value, list):
        raise DataError(f"{file}: {key!r} is no list; save the set anew")
    return value


def _configs(folder: Path) -> list[dict[str, Any]]:
    """The configurations that the head of the README says, which the hub reads."""
    file = folder / "README.md"
    if not file.is_file():
        return []
    with _blaming(file):
        text = read_bytes(file).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    head, end, _ = text.removeprefix("---\n").partition("\n---")
    if not text.startswith("---\n") or not end:
        return []
    import yaml  # type: ignore[import-untyped]  # slow, and few folders need it

    try:
        fields = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: the head is no YAML ({one_line(error)}); fix it") from None
    configs = fields.get("configs") if isinstance(fields, dict) else None
    listed = configs if isinstance(configs, list) else []
    return [each for each in listed if isinstance(each, dict) and each.get("data_files")]


def _by_header(folder: Path, configs: Sequence[Mapping[str, Any]]) -> Splits:
    """The splits of the configurations. Those of the default one have no name of a configuration
    before their own.
    """
    splits: dict[str, Sequence[Path]] = {}
    for config in configs:
        name = _name(folder, config.get("config_name", "default"))
        is_default = len(configs) == 1 or name == "default" or config.get("default") is True
        entries: Any = config["data_files"]
        if isinstance(entries, Mapping):
            entries = [{"split": split, "path": path} for split, path in entries.items()]
        is_list = isinstance(entries, list)
        if not is_list or not all(isinstance(each, Mapping) for each in entries):
            entries = [{"split": "train", "path": entries}]
        for entry in entries:
            split = _name(folder, entry.get("split", "train"))
            key = split if is_default else f"{name}/{split}"
            splits[key] = _matches(folder, entry.get("path"))
    return splits


def _matches(folder: Path, patterns: object) -> list[Path]:
    """The files of a pattern, or of several, of a README: strangers write it."""
    files: dict[Path, None] = {}
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        text = _name(folder, pattern)
        is_elsewhere = "://" in text or ".." in Path(text).parts
        if not text or is_elsewhere or is_rooted(text.removeprefix("./")):
            raise DataError(f"{folder / 'README.md'} names {text!r:.80}, no file in the folder")
        try:
            # `train-**` means what `train-*` does
            matching = sorted(folder.glob(INNER_STARS.sub("*", text)))
            rows = [file for file in matching if file.name.endswith(ROWS) and file.is_file()]
        except (ValueError, IndexError, NotImplementedError, OSError) as error:
            raise DataError(
                f"{folder / 'README.md'}: {text!r:.80} is no pattern ({one_line(error)}); fix it"
            ) from None
        files |= dict.fromkeys(file for file in rows if _is_inside(file, folder))
    return list(files)


def _name(folder: Path, value: object) -> str:
    """A text of a README. Anything else may be huge, written out."""
    if not isinstance(value, str):
        raise DataError(f"{folder / 'README.md'}: a name in 'configs' is no text; fix it")
    return value


def _is_inside(file: Path, folder: Path) -> bool:
    """Whether no link leads out of the folder on the way to a file. The file itself may be a link,
    as in the hub's cache.
    """
    return file.parent.resolve().is_relative_to(folder.resolve())


def _files_below(folder: Path) -> list[Path]:
    """The files of rows in a folder and the next levels below it, sorted, but for hidden ones."""
    files: list[Path] = []
    for place, folders, names in os.walk(folder):  # a link may lead anywhere
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if name[0] not in "._" and depth < DEPTH)
        files += [
            Path(place) / name
            for name in names
            if name.endswith(ROWS) and name[0] not in "._" and name not in NO_ROWS
        ]
    return sorted(file for file in files if file.is_file())


def _by_name(files: Iterable[Path], folder: Path) -> Splits:
    """The files by their split, which is what their names share: `train` for
    `data/train-00000-of-00002.parquet`, `main/test` for `main/test/0000.parquet`.
    """
    splits: dict[str, list[Path]] = {}
    for file in files:
        *folders, name = file.relative_to(folder).parts
        stem = SHARD.sub("", name.removesuffix(next(filter(name.endswith, ROWS))))
        parts = [*folders[folders[:1] == ["data"] :], *([stem] if stem else [])]
        splits.setdefault("/".join(parts), []).append(file)
    return splits


def _parquet(file: Path) -> Places:
    with _table(file, "Parquet") as stream:
        from pyarrow import parquet

        yield from _numbered(file, parquet.ParquetFile(stream).iter_batches(BATCH))


def _arrow(file: Path) -> Places:
    with _table(file, "Arrow") as stream:
        from pyarrow import ipc

        batches = ipc.open_stream(stream)
        slices = (
            batch.slice(start, BATCH)
            for batch in batches
            for start in range(0, batch.num_rows, BATCH)
        )
        yield from _numbered(file, slices)


def _numbered(file: Path, batches: Iterable[Any]) -> Places:
    """Each row with its place."""
    rows = chain.from_iterable(batch.to_pylist(maps_as_pydicts="lossy") for batch in batches)
    for number, fields in enumerate(rows, start=1):
        yield f"{file}, row {number}", fields


@contextmanager
def _table(file: Path, kind: str) -> Iterator[IO[bytes]]:
    """Open a file for pyarrow. Raises DataError for whatever it cannot read."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise DataError(f"{file}: {advice_on(error) or one_line(error)}") from error
    try:
        with _blaming(file), opened(file) as stream:
            yield stream
    # ValueError: text that is no UTF-8, times too fine for Python; OverflowError: dates of no year
    except (pyarrow.ArrowException, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as {kind}: {one_line(error)}") from error


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Raises DataError where the block cannot read a file."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{file} does not exist; give the path of a file of tasks") from None
    except IsADirectoryError:
        raise DataError(f"{file} is a folder; give the path of a file in it") from None
    except (OSError, EOFError, zlib.error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{file} cannot be read: {why}; give the path of another file") from error


def _text(file: Path) -> str:
    """The text of a file. Raises DataError."""
    with _blaming(file):
        data = gzip.decompress(read_bytes(file)) if file.suffix == ".gz" else read_bytes(file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}, line {line}: cannot be read as UTF-8 ({error.reason}); save it as UTF-8"
        ) from error


def _csv(file: Path) -> Places:
    """Each row with its place: the line on which it begins. A cell without a text is null."""
    text = _text(file)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names = next(reader, [])
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{file}: two columns are called {twice!r}; rename one")
        start = reader.line_num
        for cells in reader:
            where, start = f"{file}, line {start + 1}", reader.line_num
            if not cells:
                continue
            if len(cells) > len(names):
                raise DataError(
                    f"{where}: has {len(cells)} cells, but the head has {len(names)}; put a cell"
                    " with commas or line ends into quotes"
                )
            yield where, {name: cell or None for name, cell in zip(names, cells, strict=False)}
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num}: no valid CSV ({error}); fix it") from None


def _json(file: Path) -> Places:
    """Each value with its place: a line, or a row of an array."""
    text = _text(file)
    line, end, decode = 1, 0, json.JSONDecoder().raw_decode
    while (start := SPACE.match(text, end).end()) < len(text):  # type: ignore[union-attr]
        line += text.count("\n", end, start)
        where = f"{file}, line {line}"
        try:
            value, after = decode(text, start)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: no valid JSON ({error}); fix it") from error
        if isinstance(value, list) and not end:
            yield from (
                (f"{file}, row {number}", item) for number, item in enumerate(value, start=1)
            )
        else:
            yield where, value
        line, end = line + text.count("\n", start, after), after


def _is_on_hub(name: DataName) -> bool:
    """Whether a name can only be one on the hub."""
    is_name = bool(HUB.fullmatch(name.path)) and not names_files(name.path)
    return is_name and not _exists(Path(name.path))


def _exists(path: Path) -> bool:
    """Whether something is there; nothing is at a path that no system can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long; a null byte
        return False


def _own_hub_rows(name: DataName) -> Places:
    config, slash, split = name.split.rpartition("/")
    absent = f"there is no folder {name.path} here", "give the path of a folder of rows"
    if not split:
        names = ask_hub(
            name.path,
            lambda datasets: datasets.get_dataset_split_names(name.path, config or None),
            *absent,
        )
        if len(names) > 1:
            raise SettingsError(
                f"{name.path} has the splits {', '.join(names)}; choose one:"
                f" {name.path}:{config}{slash}{names[0]}"
            )
        (split,) = names
    splits = ask_hub(
        name.path,
        lambda datasets: {split: datasets.load_dataset(name.path, config or None, split=split)},
        *absent,
    )
    return hub_rows(name.path, splits)


def hub_rows(hub: str, splits: Mapping[str, Any]) -> Places:
    """The rows of splits of a data set of the hub."""
    for split, rows in splits.items():
        for number, fields in enumerate(rows, start=1):
            yield f"{hub}, {split} row {number}", fields


def ask_hub(hub: str, call: Callable[[Any], T], why: str, otherwise: str) -> T:
    """What a call of the library `datasets` returns. `why` says why the hub is asked, `otherwise`
    what to do offline. Raises DataError.
    """
    log.info("%s: reading %s from the hub", why, hub)
    try:
        with _client(hub) as datasets:
            return call(datasets)
    except ModuleNotFoundError as error:
        here = advice_on(error) or one_line(error)
        raise DataError(f"{hub} cannot be loaded from the hub: {here}; or {otherwise}") from error
    except Exception as error:  # the hub's client raises dozens of kinds
        raise DataError(
            f"{hub} cannot be loaded from the hub ({one_line(error)}), and {why}; go online, or"
            f" {otherwise}"
        ) from error


@contextmanager
def _client(hub: str) -> Iterator[Any]:
    """The library `datasets`, which reads its cache alone where the hub's name does not resolve: it
    would try again for minutes.
    """
    import datasets

    if Path(hub).exists() or has_hub():
        yield datasets
        return
    before, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, True
    try:
        with own_copies_alone():
            yield datasets
    finally:
        datasets.config.HF_HUB_OFFLINE = before
