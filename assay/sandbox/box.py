"""The folder in memory in which a slot's programs work."""

from __future__ import annotations

import contextlib
import os

from assay.sandbox.kernel import MIB, is_leftover, own_name
from assay.sandbox.namespaces import BOX_FILES, BOX_MB

MEMORY = "/dev/shm"


def make_box(user: int | None) -> str:
    """A folder for one family, whose user owns it. Raises OSError."""
    box = f"{MEMORY}/{own_name('box' + os.urandom(6).hex())}"
    os.mkdir(box, 0o700)
    if user is not None:
        os.chown(box, user, user)
    return box


def remove_box(box: str) -> None:
    """Remove it with all that it holds."""
    with contextlib.suppress(OSError):
        empty(box)
        os.rmdir(box)


def remove_leftovers() -> None:
    """Remove the boxes of processes that ended without removing them."""
    with contextlib.suppress(OSError):
        for name in filter(is_leftover, os.listdir(MEMORY)):
            remove_box(f"{MEMORY}/{name}")


def empty(box: str) -> None:
    """Remove all that a folder holds, however deep it is. Raises OSError where something stays."""
    while names := os.listdir(box):
        for path in (f"{box}/{name}" for name in names):
            if os.path.isdir(path) and not os.path.islink(path):
                with contextlib.suppress(PermissionError):  # who made it could put nothing there
                    for inner in os.listdir(path):
                        os.rename(f"{path}/{inner}", f"{box}/{os.urandom(16).hex()}")
                os.rmdir(path)
            else:
                os.unlink(path)


def is_overfull(box: str) -> bool:
    """Whether it holds more than a box may, or is too deep to tell."""
    used, files, folders = 0, 0, [box]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    used += 512 * entry.stat(follow_symlinks=False).st_blocks
        except (FileNotFoundError, PermissionError):
            continue  # removed meanwhile, or empty for want of rights
        except OSError:
            return True
        if files > BOX_FILES or used > BOX_MB * MIB:
            return True
    return False
