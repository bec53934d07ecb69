"""Whole files or none: write next to the target, flush to the disk, then rename into place."""

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from assay.errors import AssayError, DataError
from assay.lines import source_lines
from assay.os_errors import error_number
from assay.paths import is_special, read_bytes

log = logging.getLogger(__name__)
PRIVATE = 0o600


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. The file or folder that the block writes there becomes
    `path` at its end.

    A missing parent folder is made. If the block raises, or the process is killed, `path` does not
    change. A folder cannot be renamed over another one: the old one is moved aside first, and for
    that instant there is neither. A file never takes the place of a folder.

    Raises OSError with the name of `path` if it cannot be written, whatever its writer raises,
    FileExistsError if a pipe or a device is there, and FileNotFoundError if the block wrote
    nothing.
    """
    if path.name in ("", ".."):  # the folder where a command runs, or one above it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_special(path):
        raise FileExistsError(errno.EEXIST, "A pipe or a device is there", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(path)
    try:
        yield partial
        _flush_all(partial)
        if path.is_dir() and partial.is_dir():
            _swap(path, partial)
        else:
            partial.replace(path)
        _flush(path.parent)
    except OSError as error:
        if error.filename in (None, str(partial)):
            error.filename = str(path)
        raise
    except AssayError:
        raise  # its line says what is wrong, whatever it quotes
    except Exception as error:
        number = error_number(error)  # of a library written in Rust, which names no file either
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        _remove(partial)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Make `path` a file of exactly `data` (text as UTF-8), or do not change it.

    Raises OSError if it cannot be written.
    """
    with replacing(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in an error of the operating system that names no file: writing to an open file
    raises one.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporary files of a killed writer, of all files or of the one with that name.
    Only where nobody else writes them.
    """
    for partial in folder.glob(f".{name}*.partial"):
        _remove(partial)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists. A kill leaves it whole, or a temporary file."""
    if path.exists():
        _remove(path.rename(_beside(path)))


def by_step(folder: Path, ending: str = "") -> dict[int, Path]:
    """The files or folders in `folder` with names such as `step_000012`, by step, in order."""
    matches = (
        (re.fullmatch(rf"step_(\d{{6,}}){re.escape(ending)}", path.name), path)
        for path in folder.glob("step_*")
    )
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; False where another process has locked it.

    The kernel unlocks it when this process ends. A file system without locks gets a warning.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked (%s): let no other process write there", file.name, error)
    return True


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{token_hex(4)}.partial")


def _swap(path: Path, partial: Path) -> None:
    aside = path.rename(_beside(path))
    try:
        partial.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush_all(path: Path) -> None:
    if path.is_dir():
        mode = path.stat().st_mode & 0o666
        for inside in path.rglob("*"):
            if inside.lstat().st_mode == stat.S_IFREG | PRIVATE:  # and no link to one
                inside.chmod(mode)  # safetensors writes for the owner alone, whatever the umask is
            _flush(inside)
    _flush(path)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def encodable(text: str) -> str:
    """The text without lone surrogates, which a program may print and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def json_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file with a line of JSON each; half a line at the end, which is still being
    written or was when a process was killed, is left out. Raises OSError and ValueError.
    """
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in source_lines(whole)]


def saved_table(file: Path) -> dict[str, Any]:
    """The table in a JSON file of a run; empty where there is no file. Raises DataError for a file
    with anything else, and OSError.
    """
    try:
        table = json.loads(read_bytes(file), parse_constant=_refuse)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(table, dict):
        raise DataError(f"{file} cannot be read: it holds no table")
    return table


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def saved_number(file: Path, name: str, absent: float) -> float:
    """A number in a JSON file of a run; `absent` where there is no file. Raises as `saved_table`
    does.
    """
    table = saved_table(file)
    number = table.get(name) if table else absent
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise DataError(f"{file} cannot be read: {name!r} is no number")
    return number
