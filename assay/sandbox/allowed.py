"""What a family of processes may read, and as whom it runs; found by the supervisor: a zygote stays small."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("numpy", "scipy", "pandas", "sympy", "mpmath", "networkx", "sortedcontainers", "dateutil", "pytz", "six.py")
"""Third-party packages that a program may import where installed: all of site-packages that can be read.

But where the system keeps packages below LIBRARIES, as Debian's Python in /usr/lib/python3/dist-packages, all can be.
"""
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
             "/dev/urandom")  # fmt: skip
UNREAD = ("site-packages", "dist-packages", "test")
FIRST_USER = 60_000


@dataclass(frozen=True, slots=True)
class Allowed:
    """The reach of one family."""

    readable: tuple[str, ...]
    """Files and folders that may be read, with all below them."""
    listable: tuple[str, ...]
    """Folders whose names may be listed: imports look through them."""
    user: int | None
    """The user id to become; None where the family stays who we are."""


def allowed(slot: int) -> Allowed:
    """For the family of one slot: the standard library, shared libraries, the PACKAGES; a user of its own for root."""
    library = Path(sysconfig.get_path("stdlib")).resolve()
    folders = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    readable = [*LIBRARIES, *(str(entry) for entry in library.iterdir() if entry.name not in UNREAD)]
    readable += [
        str(folder / name) for folder in folders for package in PACKAGES for name in (package, f"{package}.libs")
    ]
    alone = os.getuid() == 0 and open_to_all(library)
    return Allowed(tuple(readable), (str(library), *map(str, folders)), FIRST_USER + slot if alone else None)


def open_to_all(folder: Path) -> bool:
    """Whether another user could get there: every folder above it lets others through."""
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))
