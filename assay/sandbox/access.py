"""What a family of processes may read, and as whom it runs; found by the supervisor: a zygote stays
small.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from assay.sandbox.landlock import NULL

PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "sympy",
    "mpmath",
    "networkx",
    "sortedcontainers",
    "dateutil",
    "pytz",
    "six.py",
)
"""Third-party packages that a program may import where installed: all of site-packages that can be
read.

But without a root of its own, where the system keeps packages below LIBRARIES, as Debian's Python
does in /usr/lib/python3/dist-packages, all can be.
"""
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime",
    "/usr/share/zoneinfo",
             "/dev/urandom")  # fmt: skip
SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
UNREAD = ("site-packages", "dist-packages", "test")
FIRST_USER = 60_000


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The reach of one family."""

    readable: tuple[str, ...]
    """Files and folders that may be read, with all below them."""
    listable: tuple[str, ...]
    """Folders whose names may be listed: imports look through them."""
    shown: tuple[str, ...]
    """What a root of its own holds: wide folders."""
    covered: tuple[str, ...]
    """Folders below `shown` that are empty there."""
    packages: tuple[str, ...]
    """What is shown again, where a folder above is covered or was not shown."""
    library: str
    """The standard library's folder, which a user of its own has to get to."""
    user: int | None
    """The user id to become; None where the family stays who we are."""


def access_rules(slot: int) -> AccessRules:
    """For the family of one slot: the standard library, shared libraries, the PACKAGES; a user of
    its own for root.
    """
    named = sysconfig.get_path("stdlib")
    library = Path(named).resolve()
    folders = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    packages = tuple(
        f"{folder}/{name}"
        for folder in folders
        for package in PACKAGES
        for name in (package, f"{package}.libs")
    )
    modules = (str(entry) for entry in library.iterdir() if entry.name not in UNREAD)
    return AccessRules(
        readable=(*LIBRARIES, *modules, *packages),
        listable=(str(library), *folders),
        shown=(*LIBRARIES, NULL, str(library), named),
        covered=(
            *(f"{place}/{name}" for place in {str(library), named} for name in UNREAD),
            *folders,
            SYSTEM_PACKAGES,
        ),
        packages=packages,
        library=str(library),
        user=FIRST_USER + slot if os.getuid() == 0 else None,
    )
