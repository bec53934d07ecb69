"""Identifies what files and folders contain, which is named here alone. Files are read whole,
however large they are: a model of which one layer was trained differs nowhere else. They are looked
at each time, and read again only where they may have changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from assay.bounded import BoundedDict

RACY_NS = 2 * 10**9
"""A file that was changed less than this before it was read may change again without another time:
clocks of file systems tick slowly. Nothing is concluded from its times, as in git's index."""
TRIES = 3
"""Times that a folder is read that changes meanwhile."""
DIGESTS: BoundedDict[bytes, str] = BoundedDict(10_000, 4)
"""Digests of contents by the state of all their files."""
DIGESTS_LOCK = Lock()


class Look(NamedTuple):
    """What a look at a file or folder shows, without reading the files."""

    state: bytes
    """Changes with every name, type, right, size, time and inode."""
    has_settled: bool
    """Whether any later change changes `state` too."""


def digest_of(path: Path | str, as_tree: bool = True) -> str:
    """Identifies the content of a file, which is its bytes, or of a folder.

    as_tree: a folder is what programs find in it: the names, rights, links and bytes of all that is
    below it. If not, it is what is loaded from it, as a model is: the names and bytes of the files
    that lie in it, or to which links there lead.

    Each call looks at every file, which takes some microseconds a file. Files are read again once
    one of them may have changed. Raises OSError for what is not there.
    """
    digest = ""
    for _ in range(TRIES):
        before = look_at(path, as_tree)
        with DIGESTS_LOCK:
            stored = DIGESTS.get(before.state) if before.has_settled else None
        if stored:
            return stored
        digest = _read(Path(path), as_tree)
        if look_at(path, as_tree).state == before.state:
            if before.has_settled:
                with DIGESTS_LOCK:
                    DIGESTS[before.state] = digest
            break
    return digest


def fingerprint_of(path: Path) -> str:
    """Changes whenever the content of a file or folder does, but differs between copies too. It
    reads nothing that has been left alone for a while: for folders of many gigabytes. Raises
    OSError.
    """
    look = look_at(path)
    return look.state.hex() if look.has_settled else digest_of(path)


def look_at(path: Path | str, as_tree: bool = True) -> Look:
    """A look at all files, without reading them. Times of folders do not count: what they tell is
    told by the names in them. Raises OSError.
    """
    now, state = time.time_ns(), os.stat(path)  # noqa: PTH116  a Path takes longer to make
    if not stat.S_ISDIR(state.st_mode):  # a tool, which every program is asked for
        changed, written = state.st_ctime_ns, state.st_mtime_ns
        numbers = state.st_mode, state.st_dev, state.st_ino, state.st_size, written, changed
        newest = changed if changed > written else written
        return Look(b"\0%o\0%d %d %d %d %d\0" % numbers, newest + RACY_NS < now)
    digest, newest = hashlib.blake2b(b"%d" % as_tree, digest_size=16), 0
    for name, state in _entries(Path(path)) if as_tree else _loaded(Path(path)):
        digest.update(_look_of(name, state))
        if not stat.S_ISDIR(state.st_mode):
            newest = max(newest, state.st_ctime_ns, state.st_mtime_ns)
    return Look(digest.digest(), newest + RACY_NS < now)


def _look_of(name: str, state: os.stat_result) -> bytes:
    head = b"%b\0%o\0" % (os.fsencode(name), state.st_mode)
    if stat.S_ISDIR(state.st_mode):
        return head
    numbers = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return head + b"%d %d %d %d %d\0" % numbers


def _entries(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """A folder and all that is below it, in an order that depends on names alone."""
    yield "", path.stat()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(path / folder) as entries:
                below = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, PermissionError):
            continue  # it was removed just now; or nobody here can read it
        for entry in below:
            name = f"{folder}{entry.name}"
            try:
                state = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield name, state
            if stat.S_ISDIR(state.st_mode):
                folders.append(f"{name}/")


def _loaded(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files in a folder, through links."""
    for file in sorted(filter(Path.is_file, folder.iterdir())):
        yield file.name, file.stat()


def _read(path: Path, as_tree: bool = True) -> str:
    digest = hashlib.blake2b(digest_size=16)
    if not path.is_dir():
        digest.update(_bytes_of(path) if path.is_file() else b"no file")
    elif as_tree:
        for name, state in _entries(path):
            digest.update(b"%b\0%o\0" % (os.fsencode(name), state.st_mode))
            try:
                if stat.S_ISLNK(state.st_mode):
                    digest.update(os.fsencode((path / name).readlink()))
                elif stat.S_ISREG(state.st_mode):
                    digest.update(_bytes_of(path / name))
            except (FileNotFoundError, PermissionError) as error:
                digest.update(type(error).__name__.encode())
    else:
        files = [path / name for name, _ in _loaded(path)]
        with ThreadPoolExecutor() as threads:  # hashing takes longer than reading
            for file, read in zip(files, threads.map(_bytes_of, files), strict=True):
                digest.update(b"%b\0%b" % (os.fsencode(file.name), read))
    return digest.hexdigest()


def _bytes_of(file: Path) -> bytes:
    """The digest of a file's bytes. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").digest()
