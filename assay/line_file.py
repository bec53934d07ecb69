"""A file of lines that is open for one writer, and outlives a writer that is killed."""

from __future__ import annotations

import os
from pathlib import Path

from assay.errors import SettingsError
from assay.files import lock, naming
from assay.paths import require_file_place


class LineFile:
    """A file open to append lines: those that it held, and `append`.

    A half line at the end, which a killed process leaves, is cut off. Raises SettingsError if
    another process writes to the file; `writer` is what that is.
    """

    def __init__(self, path: Path, writer: str) -> None:
        require_file_place(path)
        self._path = path
        self._file = path.open("a+b")
        if not lock(self._file):
            self._file.close()
            raise SettingsError(f"another {writer} writes {path}; wait for its end")
        self._file.seek(0)
        whole, _, half = self._file.read().rpartition(b"\n")
        if half:
            os.truncate(path, self._file.tell() - len(half))
        self.lines = whole.splitlines()
        """Those that were there when it was opened."""

    def append(self, line: str) -> None:
        """Write one line; it survives the end of this process."""
        with naming(self._path):
            self._file.write(line.encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close it, so that others may write."""
        with naming(self._path):
            self._file.close()
