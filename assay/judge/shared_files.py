"""Files that a test and the program share. Each side has a folder of its own, and with each request
and reply they tell each other what changed in it: so nothing but plain files and folders crosses,
and nothing changes while a test reads.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from os import makedirs, path, rmdir, scandir, umask, unlink  # a test may replace os's own
from os import open as open_file
from typing import Any

from assay.judge.codec_types import CodecError
from assay.sandbox.namespaces import WORK_FILES

Change = list[Any]
"""A path, which ends in "/" for a folder; permissions; bytes, or None for what is gone."""


class SharedFiles:
    """The working folder of one side."""

    def __init__(self) -> None:
        self._root = os.getcwd()
        self._known: dict[str, tuple[int, bytes]] = {}
        """What both sides have."""
        self._written = set[str]()
        """What this side has written."""
        os.chmod = chmod  # type: ignore[assignment]
        os.utime = lambda *_, **__: None

    def tell(self) -> list[Change]:
        """What has changed here since the sides last told each other."""
        before, self._known = self._known, self._entries()
        gone = [[name, 0, None] for name in before if name not in self._known]
        new = {name for name, entry in self._known.items() if before.get(name) != entry}
        self._written = self._written & self._known.keys() | new
        return gone[::-1] + [[name, *self._known[name]] for name in self._known if name in new]

    def take(self, changes: list[Change]) -> set[str]:
        """Do here what the other side tells. Returns what of this side's own that has changed.
        Raises CodecError.
        """
        try:
            if len(changes) > WORK_FILES:
                raise CodecError("too many files")
            for name, mode, data in changes:
                self._put(name, mode & 0o777, data)
            return self._written.intersection(name for name, *_ in changes)
        except (OSError, ValueError, TypeError, AttributeError):
            raise CodecError("files that cannot be made") from None

    def _put(self, name: str, mode: int, data: bytes | None) -> None:
        at = f"{self._root}/{name.removesuffix('/')}"
        folder, _, last = at.rpartition("/")
        one_name = os.fsdecode(os.fsencode(name)) == name and path.realpath(folder) == folder
        if last in ("", ".", "..") or not one_name:  # by another name it would not be trusted
            raise CodecError("a file outside the folder")
        if name.endswith("/"):
            rmdir(at) if data is None else makedirs(at, exist_ok=True)
        elif data is None or not overwrite(at, mode, data):
            with suppress(FileNotFoundError):
                unlink(at)
            if data is not None:
                write(at, mode, data)
        self._known.pop(name, None)
        if data is not None:
            self._known[name] = mode, data

    def _entries(self) -> dict[str, tuple[int, bytes]]:
        """All files and folders, each after the folder that it is in."""
        contents: dict[str, tuple[int, bytes]] = {}
        folders = [""]
        for folder in folders:
            with suppress(OSError), scandir(f"{self._root}/{folder}") as entries:
                for entry in entries:
                    name, mode = folder + entry.name, entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode):
                        contents[f"{name}/"] = 0, b""
                        folders.append(f"{name}/")
                    elif stat.S_ISREG(mode):
                        contents[name] = mode & 0o777, read(entry.path)
        return contents


def read(at: str) -> bytes:
    """What a file holds. Raises OSError."""
    with os.fdopen(open_file(at, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def write(at: str, mode: int, data: bytes) -> None:
    """Make a file. Raises OSError."""
    old = umask(0)
    try:
        descriptor = open_file(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    finally:
        umask(old)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def overwrite(at: str, mode: int, data: bytes) -> bool:
    """Put this into a file that is there, which a test may hold open, as a database; False where
    it is none, or has other permissions. Raises OSError.
    """
    try:
        descriptor = open_file(at, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        now = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(now) or now & 0o777 != mode:
            return False
        file.truncate()
        file.write(data)
    return True


def chmod(at: Any, mode: int, **_: Any) -> None:
    """As os.chmod, which the sandbox refuses, for a file of one's own: it is made anew. Those of
    folders stay.
    """
    if not path.isdir(at):
        data = read(at)
        unlink(at)
        write(at, mode & 0o777, data)
