"""A file of lines of JSON that is open for one writer, and outlives a writer that is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from assay.errors import SettingsError
from assay.files import lock, naming, remove
from assay.paths import require_file_place


class LineFile:
    """A file that is open to append lines.

    `take` gets each line that it holds. Half a line at the end, which a killed process leaves, is
    cut off after that: it has no end, is no JSON and begins as `start`, the first bytes of all
    lines. What `take` raises leaves the file as it is, and closed. Raises SettingsError if another
    process writes to the file; `writer` is what that is.
    """

    def __init__(
        self, path: Path, writer: str, start: bytes, take: Callable[[bytes], object]
    ) -> None:
        require_file_place(path)
        self._path = path
        self._file, self._is_made_here = _locked(path, writer)
        try:
            self._read(start, take)
        except BaseException:
            self.close()
            raise

    def _read(self, start: bytes, take: Callable[[bytes], object]) -> None:
        self._file.seek(0)
        last = b""
        for last in self._file:
            if not _is_half(last, start):
                take(last.removesuffix(b"\n"))
        if is_half := _is_half(last, start):
            os.truncate(self._file.fileno(), self._file.tell() - len(last))
        self._is_ended = is_half or not last or last.endswith(b"\n")

    def append(self, line: str) -> None:
        """Write one line; it survives the end of this process."""
        before = b"" if self._is_ended else b"\n"
        self._is_ended = True
        with naming(self._path):
            self._file.write(before + line.encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close it, so that others may write."""
        with naming(self._path):
            self._file.close()

    def close_or_remove(self) -> None:
        """Close it; where this object made the file and it holds nothing, remove it before, while
        no other writer can have it.
        """
        is_empty = os.fstat(self._file.fileno()).st_size == 0
        if self._is_made_here and is_empty and _is_at(self._path, self._file):
            remove(self._path)
        self.close()


def _locked(path: Path, writer: str) -> tuple[IO[bytes], bool]:
    """The file, open and locked, and whether it is new."""
    while True:
        try:
            path.touch(exist_ok=False)
            is_new = True
        except FileExistsError:
            is_new = False
        file = path.open("a+b")
        if not lock(file):
            file.close()
            raise SettingsError(f"another {writer} writes {path}; wait for its end")
        if _is_at(path, file):
            return file, is_new
        file.close()  # its writer removed it before it was locked


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Whether an open file still stands at its path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _is_half(line: bytes, start: bytes) -> bool:
    """Whether a file's last line is one that begins as `start` and that nobody wrote to its end."""
    if not line or line.endswith(b"\n"):
        return False
    line = line.rstrip(b"\0")  # as after a power failure
    if not (line.startswith(start) or start.startswith(line)):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False
