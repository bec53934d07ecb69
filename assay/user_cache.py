"""Where assay keeps what it makes once: unpacked trees, converted models, expected values. What was
not used for long is deleted, and so is the oldest beyond a size, but nothing that a process uses.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from typing import IO

log = logging.getLogger(__name__)
USUAL_GB = 50.0
"""Size of all that is kept, unless $ASSAY_CACHE_GB says another."""
MOST_SECONDS = 30 * 86_400
"""How long an entry is kept that nobody uses."""
BETWEEN_SECONDS, WRITING_SECONDS = 600, 86_400
"""Between two prunings; and after this time a file that is still being written is a leftover."""
LOCK, USERS, DELETED = ".lock", ".users", ".deleted-"


def cache_folder(kind: str) -> Path:
    """The folder of one kind of files, in `assay` below $XDG_CACHE_HOME or ~/.cache.

    A home that cannot be written, or none, stops nothing: then it is a folder of this process,
    which is deleted at its end. A warning says so once.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
        (root / "assay").mkdir(parents=True, exist_ok=True)
        if os.access(root / "assay", os.W_OK | os.X_OK):
            return root / "assay" / kind
        _warn(f"{root / 'assay'} cannot be written")
    except RuntimeError as error:  # the user has no home
        _warn(str(error))
    except OSError as error:
        _warn(f"{root} cannot be written ({error.strerror})")
    return process_folder() / kind


@cache
def _warn(why: str) -> str:
    log.warning("%s: nothing is kept for the next run; set XDG_CACHE_HOME to a folder", why)
    return why


@cache
def process_folder() -> Path:
    """A folder that is deleted when this process ends; its forks share it."""
    folder, process = Path(tempfile.mkdtemp(prefix="assay-cache-")), os.getpid()
    folder.chmod(0o755)  # the sandbox's users read trees in it

    def delete() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(delete)
    return folder


class _Additions:
    """What this process uses and has added since it last pruned."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.leases: dict[Path, IO[str]] = {}
        self.in_use: set[Path] = set()
        self.bytes: int | None = None


_OURS = _Additions()


@contextlib.contextmanager
def _exclusive(root: Path) -> Iterator[bool]:
    """A turn among processes, for a moment; False where the file system has no locks. The kernel
    ends the turn of a process that dies.
    """
    with _OURS.lock, (root / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


def _lease(root: Path) -> IO[str]:
    """The file in which this process names what it uses. It stays locked until the process, and
    every fork of it, has ended.
    """
    if root not in _OURS.leases:
        (root / USERS).mkdir(exist_ok=True)
        file = (root / USERS / f"{os.getpid()}-{token_hex(4)}").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        _OURS.leases[root] = file
    return _OURS.leases[root]


def _name_in_lease(entry: Path) -> None:
    root = entry.parents[1]
    lease = _lease(root)
    lease.write(f"{entry.relative_to(root)}\n")
    lease.flush()
    _OURS.in_use.add(entry)


def hold(entry: Path) -> bool:
    """Whether there is such an entry of a `cache_folder`. From then on nobody deletes it until this
    process has ended.
    """
    if entry in _OURS.in_use and entry.exists():
        return True
    if not entry.exists():
        return False
    with contextlib.suppress(OSError), _exclusive(entry.parents[1]) as alone:
        if entry.exists() and alone:
            _name_in_lease(entry)
            os.utime(entry)
    return entry.exists()


def new_entry(folder: Path) -> Path:
    """A new folder in a `cache_folder`, to be filled and then renamed to its key. Where this
    process dies first, it is deleted by another one. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder.parent) as alone:
        entry = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        if alone:
            _name_in_lease(entry)
    entry.chmod(0o755)  # the sandbox's users read trees in it
    return entry


def mark_used(entry: Path) -> None:
    """Let an entry count as used just now."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def added(entry: Path) -> None:
    """Note a new entry. The first of a process, and each that fills a tenth of the bound with those
    before it, has the cache pruned in the background.
    """
    root, most = entry.parents[1], most_bytes()
    if root == _root_of_process():
        return
    size = size_on_disk(entry, set())  # a tree may have 100,000 files: nobody waits for it
    with _OURS.lock:
        is_first, grown = _OURS.bytes is None, (_OURS.bytes or 0) + size
        is_full = grown > most / 10
        _OURS.bytes = 0 if is_full else grown
    if is_full or (is_first and _age(root / LOCK) > BETWEEN_SECONDS):
        Thread(target=prune, args=(root, most), daemon=True, name="prune the cache").start()


def most_bytes() -> int:
    """The bound on all that is kept."""
    with contextlib.suppress(ValueError):
        return int(float(os.environ.get("ASSAY_CACHE_GB") or USUAL_GB) * 1e9)
    log.warning("ASSAY_CACHE_GB is no number; the cache is kept below %g GB", USUAL_GB)
    return int(USUAL_GB * 1e9)


def prune(root: Path, most: int, most_seconds: float = MOST_SECONDS) -> None:
    """Delete what was not used for so long, and the entries that were used least recently until
    the others take at most so many bytes. What a living process uses stays.
    """
    with contextlib.suppress(OSError):
        victims = _victims(root, most, most_seconds)
        with _exclusive(root) as alone:
            used = _used(root) if alone else victims.keys()
            for entry, last_use in victims.items():
                if entry not in used and entry.lstat().st_mtime == last_use:
                    entry.rename(root / f"{DELETED}{token_hex(8)}")
            os.utime(root / LOCK)
        for deleted in root.glob(f"{DELETED}*"):  # of a process that died meanwhile, too
            _delete(deleted)


def _victims(root: Path, most: int, most_seconds: float) -> dict[Path, float]:
    """What is to be deleted, unless somebody uses it, and when that was used last."""
    uses, victims = dict[Path, float](), dict[Path, float]()
    for entry in root.glob("[!.]*/*"):
        with contextlib.suppress(FileNotFoundError):
            if entry.suffix != ".lock":
                uses[entry] = entry.lstat().st_mtime
    total, counted, now = 0, set[tuple[int, int]](), time.time()
    for entry, last_use in sorted(uses.items(), key=lambda item: -item[1]):
        if entry.name.startswith("."):
            is_old = entry.name.startswith(".new-") or now - last_use > WRITING_SECONDS
        else:
            total += size_on_disk(entry, counted)
            is_old = total > most or now - last_use > most_seconds
        if is_old:
            victims[entry] = last_use
    return victims


def _used(root: Path) -> set[Path]:
    """What living processes use. The leases of dead ones are removed."""
    used = set[Path]()
    for file in (root / USERS).glob("*"):
        with file.open() as lease:
            try:
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                used |= {root / line for line in lease.read().splitlines()}
            else:
                file.unlink()
    return used


def size_on_disk(entry: Path, counted: set[tuple[int, int]]) -> int:
    """The bytes that a file or folder takes on the disk, but for files in `counted`, to which its
    own are added: a file with several links takes them once.
    """
    total, left = 0, [entry]
    while left:
        path = left.pop()
        with contextlib.suppress(OSError):
            state = path.lstat()
            if (state.st_dev, state.st_ino) not in counted:
                counted.add((state.st_dev, state.st_ino))
                total += 512 * state.st_blocks
            if path.is_dir() and not path.is_symlink():
                left += path.iterdir()
    return total


def _delete(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return float("inf")


def _root_of_process() -> Path | None:
    """The folder that takes the cache's place, if this process has one."""
    return process_folder() if process_folder.cache_info().currsize else None
