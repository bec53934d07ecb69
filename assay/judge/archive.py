"""Verdicts on disk, for those who judge the same programs in run after run."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import sqlite3
import sys
from dataclasses import asdict
from pathlib import Path

import assay
from assay.judge.supervisor_client import execution_of
from assay.types import Execution

log = logging.getLogger(__name__)
WAIT_SECONDS = 5.0


class Archive:
    """Executions by key, and by this judge's edition, in one file that several judges may share.

    What cannot be read or written is judged again.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._open: sqlite3.Connection | None = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._open = sqlite3.connect(file, timeout=WAIT_SECONDS, isolation_level=None)
            self._open.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;CREATE TABLE IF NOT EXISTS"
                " verdicts (key BLOB PRIMARY KEY, execution TEXT) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> Execution | None:
        """What is known of `key`."""
        try:
            row = self._run("SELECT execution FROM verdicts WHERE key = ?", edition() + key)
            return execution_of(json.loads(row[0])) if row else None
        except (ValueError, TypeError, KeyError) as error:
            self._give_up(error)
            return None

    def put(self, key: bytes, execution: Execution) -> None:
        """Keep one execution."""
        self._run(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?)",
            edition() + key,
            json.dumps(asdict(execution)),
        )

    def close(self) -> None:
        """Let go of the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _run(self, statement: str, *values: bytes | str) -> tuple[str] | None:
        """The first row, if there is any; none from the first failure on."""
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


@functools.cache
def edition() -> bytes:
    """What tells this judge's verdicts from another's: its own source, and the versions of Python
    and its packages.
    """
    installed = sorted(
        record.name for folder in sys.path for record in Path(folder).glob("*.dist-info")
    )
    digest = hashlib.blake2b("\n".join([sys.version, *installed]).encode(), digest_size=16)
    root = Path(assay.__file__).parent
    for file in sorted([*(root / "judge").glob("*.py"), *(root / "sandbox").glob("*.py")]):
        digest.update(file.read_bytes())
    return digest.digest()
