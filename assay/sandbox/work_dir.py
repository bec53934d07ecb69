"""The folder in memory in which a slot's programs work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from assay.sandbox.kernel import MIB, is_leftover, own_name, read_text
from assay.sandbox.namespaces import FILE_MB, WORK_FILES, WORK_MB

MEMORY = "/dev/shm"
DELETED = " (deleted)"


def make_work_dir(user: int | None) -> str:
    """A folder for one family, whose user owns it. Raises OSError."""
    work_dir = f"{MEMORY}/{own_name('work' + os.urandom(6).hex())}"
    os.mkdir(work_dir, 0o700)
    if user is not None:
        os.chown(work_dir, user, user)
    return work_dir


def remove_work_dir(work_dir: str) -> None:
    """Remove it with all that it holds."""
    with contextlib.suppress(OSError):
        empty(work_dir)
        os.rmdir(work_dir)


def remove_leftovers() -> None:
    """Remove the work folders of processes that ended without removing them."""
    with contextlib.suppress(OSError):
        for name in filter(is_leftover, os.listdir(MEMORY)):
            remove_work_dir(f"{MEMORY}/{name}")


def empty(work_dir: str) -> None:
    """Remove all that a folder holds, however deep it is and whatever its modes. Raises OSError
    where something stays.
    """
    os.chmod(work_dir, 0o700)
    while names := os.listdir(work_dir):
        for path in (f"{work_dir}/{name}" for name in names):
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
                for inner in os.listdir(path):
                    os.rename(f"{path}/{inner}", f"{work_dir}/{os.urandom(16).hex()}")
                os.rmdir(path)
            else:
                os.unlink(path)


def nameless_files(work_dir: str, pid: int, largest: int = FILE_MB * MIB) -> dict[int, int]:
    """The bytes of files, by their inodes, that a process has removed from its folder but holds
    open or mapped. What is mapped alone counts as the `largest` file. Raises OSError where that
    cannot be seen.
    """
    device, sizes = os.stat(work_dir).st_dev, dict[int, int]()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            status = os.stat(f"/proc/{pid}/fd/{name}")
            if status.st_dev == device and not status.st_nlink:
                sizes[status.st_ino] = 512 * status.st_blocks
    place = f"{os.major(device):02x}:{os.minor(device):02x}"
    for line in read_text(f"/proc/{pid}/maps").splitlines():
        _, _, _, where, inode, *path = line.split(maxsplit=5)
        if where == place and path and path[0].startswith(work_dir) and path[0].endswith(DELETED):
            sizes.setdefault(int(inode), largest)
    return sizes


def is_overfull(
    work_dir: str, pids: Iterable[int] = (), most_bytes: int = WORK_MB * MIB,
    most_files: int = WORK_FILES, largest: int = FILE_MB * MIB,
) -> bool:  # fmt: skip
    """Whether it holds more than it may, or hides what it holds; with what processes have removed
    and still hold.
    """
    nameless = dict[int, int]()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            nameless |= nameless_files(work_dir, pid, largest)
    try:
        used, files = contents(work_dir, most_files)
    except OSError:
        return True
    return files + len(nameless) > most_files or used + sum(nameless.values()) > most_bytes


def contents(work_dir: str, most_files: int) -> tuple[int, int]:
    """The bytes and the number of its files and folders; it stops at more files than these. Raises
    OSError where a folder cannot be read.
    """
    used, files, folders = 0, 0, [work_dir]
    while folders and files <= most_files:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                files += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    used += 512 * entry.stat(follow_symlinks=False).st_blocks
    return used, files
