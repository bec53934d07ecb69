"""Remembers verdicts, so that a program is not run twice on the same task."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
import sqlite3
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import assay
from assay.errors import DataError
from assay.judge.verdict import execution_of
from assay.types import Execution, Verdict

log = logging.getLogger(__name__)
WAIT_SECONDS = 5.0


class Archive:
    """Executions by key, by this judge's edition and by its sandbox's tier and walls, in an SQLite
    file that judges can share.

    Where the file cannot be read or written, a warning is logged and programs are judged again.
    """

    def __init__(self, file: Path, isolation: str = "") -> None:
        self.file = file
        self._judge = edition() + isolation.encode()
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
        """The execution of `key`, if it is stored."""
        try:
            row = self._run("SELECT execution FROM verdicts WHERE key = ?", self._judge + key)
            return execution_of(json.loads(row[0])) if row else None
        except (ValueError, TypeError, KeyError) as error:
            self._give_up(error)
            return None

    def put(self, key: bytes, execution: Execution) -> None:
        """Store one execution."""
        self._run(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?)",
            self._judge + key,
            json.dumps(asdict(execution)),
        )

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _run(self, statement: str, *values: bytes | str) -> tuple[str] | None:
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


@functools.cache
def installed() -> list[str]:
    """The versions of Python and of the installed packages."""
    records = (record.name for folder in sys.path for record in Path(folder).glob("*.dist-info"))
    return [sys.version, *sorted(records)]


@functools.cache
def edition() -> bytes:
    """Identifies this judge: its source, and the versions of Python and the installed packages."""
    digest = hashlib.blake2b("\n".join(installed()).encode(), digest_size=16)
    root = Path(assay.__file__).parent
    for folder in ("judge", "languages", "sandbox"):
        for file in sorted((root / folder).rglob("*.*")):
            digest.update(b"" if file.suffix == ".pyc" else file.read_bytes())
    return digest.digest()


K = TypeVar("K")
V = TypeVar("V")
CACHED = 20_000
PRINTED_CHARACTERS = 4096
"""An execution that printed more is not cached, so that CACHED of them fit into memory."""
NOT_LASTING = (Verdict.INFRA, Verdict.TIMEOUT, Verdict.MEMORY)
"""Verdicts that may depend on the machine's state; they are not cached."""


class BoundedDict(OrderedDict[K, V]):
    """A dict that drops the oldest entry once it holds more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


class SharedWork(BoundedDict[K, asyncio.Task[V]]):
    """What is made once for all who ask for a key, and cancelled where nobody waits any more."""

    keeps: tuple[type[Exception], ...] = (DataError,)
    """The errors that are raised again for whoever asks later; after any other it is made again."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._waiters = Counter[asyncio.Task[V]]()

    async def get_or_make(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """What `make` returns. Raises what it raises."""
        task = self.pop(key, None)
        if task is None or task.cancelled():
            task = asyncio.ensure_future(make())
        self[key] = task  # as the newest
        self._waiters[task] += 1
        try:
            return await asyncio.shield(task)
        except Exception as error:
            if not isinstance(error, self.keeps):
                self._drop(key, task)
            raise
        finally:
            self._waiters[task] -= 1
            if not self._waiters[task]:
                del self._waiters[task]
                if not task.done():
                    task.cancel()
                    self._drop(key, task)

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        """Forget a task, unless the key has another one by now."""
        if self.get(key) is task:
            del self[key]

    def close(self) -> None:
        """Cancel what is being made."""
        for task in self.values():
            task.cancel()


class VerdictCache(SharedWork[bytes, Execution]):
    """The last CACHED executions by key, and all of them in `archive`."""

    archive: Archive | None = None
    keeps = ()  # an error may be of the moment: a tool that does not answer

    async def get_or_run(
        self,
        key: bytes,
        judge: Callable[[], Awaitable[Execution]],
        lasts: Callable[[Execution], bool] = lambda _: True,
    ) -> Execution:
        """The execution of `key`, from `judge` where it is not cached. It is cached if it `lasts`,
        too; what `judge` raises is not.
        """

        async def run() -> Execution:
            stored = self.archive.get(key) if self.archive else None
            execution = stored or await judge()
            lasting = stored or (execution.verdict not in NOT_LASTING and lasts(execution))
            if self.archive and lasting and not stored:
                self.archive.put(key, execution)
            if not lasting or len(execution.output) + len(execution.stderr) > PRINTED_CHARACTERS:
                self.pop(key, None)
            return execution

        return await self.get_or_make(key, run)
