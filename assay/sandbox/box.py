"""The folder in memory in which a slot's programs work, where it is no file system of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from assay.sandbox.cgroups import start_time
from assay.sandbox.kernel import MIB
from assay.sandbox.namespaces import BOX_FILES, BOX_MB

MEMORY = Path("/dev/shm")
NAME = re.compile(r"assay-box-(\d+)-(\d+)-\w+")
"""A box's name: pid and start time of the process that made it, and letters."""


def make_box(user: int | None) -> str:
    """A folder for one family, whose user owns it. Raises OSError."""
    pid = os.getpid()
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    box = tempfile.mkdtemp(prefix=f"assay-box-{pid}-{start_time(pid)}-", dir=parent)
    if user is not None:
        os.chown(box, user, user)
    return box


def remove_box(box: str) -> None:
    """Remove it with all that it holds."""
    shutil.rmtree(box, ignore_errors=True)


def remove_leftovers() -> None:
    """Remove the boxes of processes that ended without removing them."""
    with contextlib.suppress(OSError):
        for folder in MEMORY.glob("assay-box-*"):
            name = NAME.fullmatch(folder.name)
            if name and start_time(int(name[1])) != int(name[2]):
                remove_box(str(folder))


def is_overfull(box: str) -> bool:
    """Whether it holds more than a box may."""
    used = files = 0
    for folder, folders, names in os.walk(box):
        files += len(folders) + len(names)
        if files > BOX_FILES:
            return True
        for name in names:
            with contextlib.suppress(OSError):
                used += 512 * os.lstat(f"{folder}/{name}").st_blocks
    return used > BOX_MB * MIB
