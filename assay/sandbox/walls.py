"""The walls around untrusted code, in the order they go up.

A family (one zygote and all it forks) first gives up files, users, capabilities and most system calls; each leaf then
takes its limits and gives up processes. Nothing of this can be undone from inside. Zygotes import this file, so it is
sparing with imports: every page and mapping of a zygote is paid for at each fork.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import TYPE_CHECKING

from assay.sandbox import kernel, landlock, seccomp

if TYPE_CHECKING:
    from assay.sandbox.limits import Limits

PACKAGES = ("numpy", "scipy", "pandas", "sympy", "mpmath", "networkx", "sortedcontainers", "dateutil", "pytz", "six.py")
"""Third-party packages that a program may import where installed; no other file of site-packages can be read."""
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
             "/dev/null", "/dev/urandom")  # fmt: skip
UNREAD = ("site-packages", "dist-packages", "test")
FIRST_USER = 60_000
MIB = 1024 * 1024


def library_folders() -> list[str]:
    """Where the standard library lies; site-packages may be inside, and is left out by `readable`."""
    found = {os.path.realpath(os.path.dirname(module.__file__ or "")) for module in (os, resource)}
    return [folder.removesuffix("/lib-dynload") for folder in found]


def package_folders() -> list[str]:
    """The folders on the path that hold third-party packages: their names may be listed."""
    return [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]


def readable() -> list[str]:
    """Everything that a program may read: the standard library, shared libraries, and the PACKAGES."""
    paths = list(LIBRARIES)
    for folder in library_folders():
        paths += [f"{folder}/{name}" for name in os.listdir(folder) if name not in UNREAD]
    for folder in package_folders():
        paths += [f"{folder}/{name}" for package in PACKAGES for name in (package, f"{package}.libs")]
    return paths


def enclose_family(slot: int, required: bool = True) -> None:
    """Wall in this process and all it will fork. With `required`, raises OSError where a wall cannot be had."""
    kernel.forgo_privileges()
    for which, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_MEMLOCK, 0), (resource.RLIMIT_FSIZE, MIB)):
        resource.setrlimit(which, (value, value))
    walls = (
        lambda: become_nobody(FIRST_USER + slot),
        lambda: landlock.restrict(readable(), [*package_folders(), *library_folders()]),
        kernel.drop_capabilities,
        lambda: seccomp.Filter(seccomp.family_filter()).load(),
    )
    for wall in walls:
        try:
            wall()
        except OSError:
            if required:
                raise
    kernel.hide()


def become_nobody(user: int) -> None:
    """As root, become `user`, unless it could then not read the interpreter; as anyone else, stay who we are."""
    if os.getuid() == 0 and interpreter_is_open_to_all():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def interpreter_is_open_to_all() -> bool:
    """Whether another user could import from the standard library: every folder above it lets others through."""
    for folder in library_folders():
        while os.stat(folder).st_mode & 0o001:
            if folder == "/":
                break
            folder = os.path.dirname(folder)
        else:
            return False
    return True


class LeafWalls:
    """The walls of a leaf, prepared once by the zygote: limits, then no more processes."""

    def __init__(self, limits: Limits, *, cpu_seconds: int, memory_mb: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        stack = limits.stack_mb * MIB if hard == resource.RLIM_INFINITY else min(hard, limits.stack_mb * MIB)
        self.limits = (
            (resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1)),
            (resource.RLIMIT_DATA, (memory_mb * MIB, memory_mb * MIB)),
            (resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files)),
            (resource.RLIMIT_STACK, (stack, stack)),
        )
        self.filter = seccomp.Filter(seccomp.leaf_filter())

    def enclose(self, parent: int) -> None:
        """The last step before untrusted code. Raises OSError."""
        os.setsid()
        kernel.die_with_parent(parent)
        for which, value in self.limits:
            resource.setrlimit(which, value)
        self.filter.load()
