"""Verdicts on disk, in one SQLite file that judges share."""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import asdict
from pathlib import Path

from assay.bounded import MIB
from assay.errors import DataError
from assay.judge.edition import edition
from assay.judge.verdict import execution_of
from assay.paths import opened, real_path
from assay.types import Execution

log = logging.getLogger(__name__)
WAIT_SECONDS = 5.0
SQLITE, MARK = b"SQLite format 3\0", b"assa"
"""How an SQLite file begins; and the application id of ours, which stands at MARK_AT."""
MARK_AT = slice(68, 72)
ARCHIVE_MB, BETWEEN_LOOKS = 1024, 100
"""The bound on a file of verdicts, which is looked at before so many are added."""


def require_ours(file: Path) -> None:
    """Raises DataError for a pipe or a device, and for an SQLite file of another program: it would
    get our table and another journal. Raises OSError.
    """
    try:
        with opened(file) as stream:
            head = stream.read(100)
    except FileNotFoundError:
        return
    if head.startswith(SQLITE) and head[MARK_AT] != MARK:
        raise DataError(
            f"{file} is the SQLite file of another program; name another file for the verdicts, or"
            " a new one"
        )


class Archive:
    """Executions by key, by this judge's edition and by its sandbox's tier and walls, in an SQLite
    file that judges can share.

    Where the file cannot be read or written, a warning is logged and programs are judged again.
    Raises DataError for the file of another program.
    """

    def __init__(self, file: Path, isolation: str = "", most_mb: float = ARCHIVE_MB) -> None:
        self.file = file
        self._most_bytes, self._added = int(most_mb * MIB), 0
        self._judge = edition() + isolation.encode()
        self._open: sqlite3.Connection | None = None
        try:
            real_path(file).parent.mkdir(parents=True, exist_ok=True)
            require_ours(file)
            self._open = sqlite3.connect(file, timeout=WAIT_SECONDS, isolation_level=None)
            self._open.executescript(
                f"PRAGMA application_id=0x{MARK.hex()}; PRAGMA journal_mode=WAL;"
                " PRAGMA synchronous=NORMAL; CREATE TABLE IF NOT EXISTS"
                " verdicts (key BLOB PRIMARY KEY, execution TEXT) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> Execution | None:
        """The execution of `key`, if it is stored."""
        try:
            row = self._run("SELECT execution FROM verdicts WHERE key = ?", self._judge + key)
            return execution_of(json.loads(row[0])) if row else None
        except (ValueError, TypeError, KeyError) as error:
            self._give_up(error)
            return None

    def put(self, key: bytes, execution: Execution) -> None:
        """Store one execution. A file that has grown to `most_mb` MiB forgets those of other
        judges, and then a random half of this one's.
        """
        self._added += 1
        if self._added % BETWEEN_LOOKS == 1 and self._is_full():
            self._run("DELETE FROM verdicts WHERE substr(key, 1, ?) != ?",
                      len(self._judge), self._judge)  # fmt: skip
            if self._is_full():
                self._run("DELETE FROM verdicts WHERE random() % 2")
        self._run(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?)",
            self._judge + key,
            json.dumps(asdict(execution)),
        )

    def _is_full(self) -> bool:
        used = self._run(
            "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(),"
            " pragma_freelist_count(), pragma_page_size()"
        )
        return used is not None and int(used[0]) >= self._most_bytes

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _run(self, statement: str, *values: bytes | str | int) -> tuple[str] | None:
        """The first row, if there is one; None after the first failure."""
        try:
            return self._open.execute(statement, values).fetchone() if self._open else None
        except sqlite3.Error as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        log.warning(
            "the verdicts in %s cannot be used (%s): judging without them", self.file, error
        )
        self.close()
