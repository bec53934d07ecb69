"""The folder in memory in which a slot's programs work."""

from __future__ import annotations

import contextlib
import os

from assay.sandbox.kernel import MIB, is_leftover, own_name
from assay.sandbox.namespaces import WORK_FILES, WORK_MB

MEMORY = "/dev/shm"


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


def is_overfull(work_dir: str) -> bool:
    """Whether it holds more than a work folder may, or hides what it holds."""
    used, files, folders = 0, 0, [work_dir]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    used += 512 * entry.stat(follow_symlinks=False).st_blocks
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            return True
        if files > WORK_FILES or used > WORK_MB * MIB:
            return True
    return False
