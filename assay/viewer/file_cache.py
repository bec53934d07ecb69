"""Files of runs, read once: a file that cannot be read is named, and takes nothing else along."""

import logging
import os
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from assay.bounded import BoundedDict, size_of
from assay.errors import DataError

T = TypeVar("T")
Stamp = tuple[int, int, int, int]
log = logging.getLogger(__name__)
UNREADABLE = (
    DataError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
    RuntimeError,
)  # fmt: skip
"""What reading a damaged file may raise; pyarrow's errors and RecursionError are among them."""
FILES, PARSED_MB, DAMAGE_MB = 100_000, 512, 32
"""Files that are remembered, and MiB of what is in them and of what is wrong with others."""
GROWTH = 10
"""How many times the size of a file of JSON its content takes in memory."""
REASON = 200
"""Characters of a reason."""


def weight_of(entry: tuple[Any, Any]) -> int:
    """About how many bytes a file's key or content takes. Content is estimated by the file's size:
    to look at each number of a long run takes longer than to read them.
    """
    stamp, parsed = entry
    return GROWTH * stamp[-1] if isinstance(parsed, list | dict) else size_of(entry)


class FileCache:
    """Parsed files below a folder, read again when they change; and which of them are damaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._parsed: BoundedDict[tuple[Path, str], tuple[Stamp, Any]]
        self._parsed = BoundedDict(FILES, PARSED_MB, weight_of)
        self._damage: BoundedDict[tuple[Path, str], tuple[Stamp | None, str]]
        self._damage = BoundedDict(FILES, DAMAGE_MB)
        self._lock = RLock()

    def read(self, file: Path, parse: Callable[[Path], T], absent: T) -> T:
        """`parse(file)`; or `absent` where there is no file, a link leads elsewhere, or the file is
        damaged, which `damage` then tells.
        """
        key = file, parse.__name__
        if not is_below(self.root, file):
            return absent
        with self._lock:
            try:
                stamp = _stamp(file)
            except OSError as error:
                if os.path.lexists(file):
                    self._damage[key] = None, self._reason(error)
                else:
                    self._damage.pop(key, None)
                return absent
            if self._damage.get(key, (None,))[0] == stamp:
                return absent
            if self._parsed.get(key, (None,))[0] != stamp:
                try:
                    parsed = parse(file)
                    self._parsed[key] = stamp, parsed
                except UNREADABLE as error:
                    self._parsed.pop(key, None)
                    self._damage[key] = stamp, self._reason(error)
                    return absent
            else:
                parsed = self._parsed[key][1]
            self._damage.pop(key, None)
        return parsed

    def blame(self, file: Path, part: str, error: BaseException) -> None:
        """Say that a part of a file cannot be read, until the file changes."""
        with self._lock:
            self._damage[file, part] = _stamp_or_none(file), self._reason(error)

    def is_damaged(self, file: Path, part: str) -> bool:
        """Whether this part of the file was blamed, and the file has not changed since."""
        with self._lock:
            blamed = self._damage.get((file, part))
        return blamed is not None and blamed[0] == _stamp_or_none(file)

    def damage(self, folder: Path) -> list[str]:
        """A line on each file below the folder that could not be read. A path begins with the name
        of the folder that is shown: a page that is sent tells no more of this machine.
        """
        with self._lock:
            damage = sorted(self._damage.items(), key=lambda item: item[0])
        reasons = {
            file: why
            for (file, _), (stamp, why) in damage
            if file.is_relative_to(folder)
            and os.path.lexists(file)
            and stamp == _stamp_or_none(file)
        }
        return [
            f"{self.root.name / file.relative_to(self.root)} cannot be read: {why}"
            for file, why in reasons.items()
        ]

    def _reason(self, error: BaseException) -> str:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        words = text[: 10 * REASON].replace(f"{self.root.parent}/", "").split()
        return " ".join(words)[:REASON] or type(error).__name__


def _stamp(file: Path) -> Stamp:
    """Raises OSError for what cannot be read as a file: a pipe would be waited for."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is no file")
    return status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size


def _stamp_or_none(file: Path) -> Stamp | None:
    try:
        return _stamp(file)
    except OSError:
        return None


def is_below(root: Path, path: Path) -> bool:
    """Whether a file or folder lies below the (resolved) root, links followed: a run that somebody
    sent may hold links to other files of this machine.
    """
    below = Path(os.path.realpath(path)).is_relative_to(root)
    if not below:
        _warn(path)
    return below


@lru_cache(maxsize=1024)
def _warn(path: Path) -> None:
    log.warning("%s is a link that leads out of the folder; it is not read", path)
