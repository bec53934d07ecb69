"""Whole files or none: write next to the target, flush to the disk, then rename into place."""

import errno
import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from assay.errors import SettingsError

log = logging.getLogger(__name__)
ROWS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
"""Endings of files that hold rows."""
PATH_ERRORS = {
    errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
"""Errors that another path avoids: the user's. All others of the operating system are the
machine's."""
ADVICE = {
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room in your quota and run the same command again",
    errno.EFBIG: "raise the limit (`ulimit -f`) and run the same command again",
    errno.EMFILE: "raise the limit (`ulimit -n`) and run the same command again",
}


def split_spec(spec: str) -> tuple[str, str]:
    """A task set's name and its split or file: of `mbpp:train`, `jsonl:my.jsonl` or `my.jsonl`.

    Raises SettingsError for a file that holds no rows, by its name.
    """
    name, colon, split = spec.partition(":")
    is_path = Path(spec).suffix or "/" in spec or spec == "."
    if is_path and not colon and not spec.endswith(ROWS):
        raise SettingsError(f"{spec} is no file of tasks; write rows of JSON to a .jsonl file")
    return ("jsonl", spec) if spec.endswith(ROWS) and not colon else (name, split)


def error_number(error: Exception) -> int | None:
    """The `errno` of an operating system's error; None for other errors.

    Libraries written in Rust (safetensors, tokenizers) give it in their text only.
    """
    if isinstance(error, OSError):
        return error.errno or 0
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def advice(error: Exception) -> str:
    """What to do about an operating system's error."""
    number = error_number(error)
    other = "choose another path" if number in PATH_ERRORS else "run the same command again"
    return ADVICE.get(number or 0, other)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. The file or folder that the block writes there becomes
    `path` at its end.

    A missing parent folder is made. If the block raises, or the process is killed, `path` does not
    change. A folder cannot be renamed over another one: the old one is moved aside first, and for
    that instant there is neither. A file never takes the place of a folder.

    Raises OSError with the name of `path` if it cannot be written, and FileNotFoundError if the
    block wrote nothing.
    """
    if path.name in ("", ".."):  # the folder where a command runs, or one above it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
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
    finally:
        _remove(partial)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Make `path` a file of exactly `data` (text as UTF-8), or do not change it.

    Raises OSError if it cannot be written.
    """
    with replacing(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


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
        for inside in path.rglob("*"):
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
    return [json.loads(line) for line in whole.splitlines()]
