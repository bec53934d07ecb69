"""Finds what a family of processes may read. The supervisor calls this, since a zygote stays
small.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Collection, Sequence
from pathlib import Path

from assay.sandbox.landlock import NULL
from assay.sandbox.namespaces import TEMPORARY, AccessRules

PACKAGES = (
    "numpy", "scipy", "pandas", "sympy", "mpmath", "networkx", "sortedcontainers", "dateutil",
    "pytz", "six.py",
)  # fmt: skip
"""Third-party packages that a program may import where they are installed.

Nothing else of site-packages can be read. But where the system keeps packages below LIBRARIES, as
Debian does in /usr/lib/python3/dist-packages, all of them can be read without a mount namespace.
"""
LIBRARIES = (
    "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime",
    "/usr/share/zoneinfo", "/dev/urandom",
)  # fmt: skip
SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
UNREAD = ("site-packages", "dist-packages", "test")
TOOLCHAINS = (
    "/usr/bin", "/bin", "/usr/include", "/usr/libexec", "/etc/alternatives",
    "/etc/ssl/openssl.cnf", "/usr/share/nodejs",
    *(str(path) for path in [*Path("/usr/share").glob("go-*"), *Path("/etc").glob("java-*")]),
)  # fmt: skip
"""What programs and compilers need beside libraries."""
BASE = getattr(sys, "_base_executable", "") or sys.executable
"""The interpreter on which a virtual environment stands, which may hold a copy of it."""
INTERPRETER = (
    os.path.realpath(BASE if Path(BASE).exists() else sys.executable),
    f"{sysconfig.get_config_var('LIBDIR')}/{sysconfig.get_config_var('INSTSONAME')}",
)
"""What starts Python: the program and its shared library."""
HARNESS_PACKAGES = (
    "cocotb", "cocotb_tools", "pygpi", "find_libpython", "pytest", "_pytest", "py.py", "pluggy",
    "iniconfig", "packaging", "pygments",
)  # fmt: skip
"""What a harness of cocotb imports; a family that starts programs may."""


def access_rules(
    user: int | None, work_dir: str = "", reads: Sequence[str] = (), starts_programs: bool = False,
    required: Collection[str] = (),
) -> AccessRules:  # fmt: skip
    """The rules of one family: read the standard library, shared libraries and PACKAGES; run as
    `user`, which `claim_user` gives. One that `starts_programs` reads TOOLCHAINS, INTERPRETER and
    what `reads` names too. `required`: its walls, on which it depends what it may do to files of
    its own.
    """
    libraries = (*LIBRARIES, *TOOLCHAINS, *INTERPRETER) if starts_programs else LIBRARIES
    unresolved = sysconfig.get_path("stdlib")
    library = Path(unresolved).resolve()
    folders = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    names = (*PACKAGES, *HARNESS_PACKAGES) if starts_programs else PACKAGES
    parts = [part for name in names for part in (name, f"{name}.libs")]
    packages = (*(f"{folder}/{part}" for folder in folders for part in parts), *reads)
    modules = (str(entry) for entry in library.iterdir() if entry.name not in UNREAD)
    unread = (f"{place}/{name}" for place in {str(library), unresolved} for name in UNREAD)
    private = starts_programs and {"namespaces", "landlock"} <= set(required)
    return AccessRules(
        readable=(*libraries, *modules, *packages),
        listable=(str(library), *folders),
        visible=(*libraries, NULL, str(library), unresolved),
        covered=(*unread, *folders, SYSTEM_PACKAGES),
        packages=packages,
        library=str(library),
        user=user,
        work_dir=work_dir,
        starts_programs=starts_programs,
        sets_modes="user" in required,
        temporary=TEMPORARY if private else "",
    )
