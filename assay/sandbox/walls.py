"""The walls around untrusted code, in the order they go up.

A family (one zygote and all it forks) first gives up files, users, capabilities and most system
calls; each leaf then takes its limits and gives up processes. Nothing of this can be undone from
inside. Zygotes import this file, so it is sparing with imports: every page and mapping of a zygote
is paid for at each fork.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from assay.sandbox import kernel, landlock, namespaces, seccomp

if TYPE_CHECKING:
    from assay.sandbox.access import AccessRules
    from assay.sandbox.limits import Limits

MIB = 1024 * 1024
ADDRESS_SPACE_MB = 16 * 1024
"""Address space beyond the memory: libraries and threads reserve much, and page tables for all of
it stay small."""
THREADS = 256
"""Threads of one leaf, where its user is the family's own."""


def family(reach: AccessRules) -> dict[str, Callable[[], None]]:
    """The walls of a family by name, in the order in which they go up; each raises OSError where it
    cannot be had.
    """
    walls: dict[str, Callable[[], None]] = {"namespaces": partial(namespaces.enter, reach)}
    if reach.user is not None:
        walls["user"] = partial(become, reach.user, reach.library)
    return walls | {
        "landlock": partial(landlock.restrict, reach.readable, reach.listable),
        "capabilities": kernel.drop_capabilities,
        "seccomp": lambda: seccomp.Filter(seccomp.family_filter()).load(),
    }


def enclose_family(reach: AccessRules, required: Collection[str]) -> None:
    """Put up the `required` walls around this process and all it will fork. Raises OSError where
    one fails.
    """
    limit_family()
    for name, wall in family(reach).items():
        if name in required:
            wall()
    kernel.hide()


def limit_family() -> None:
    """No new privileges, no core files, no files that grow."""
    kernel.forgo_privileges()
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_FSIZE, MIB),
    ):
        resource.setrlimit(which, (value, value))


def become(user: int, library: str) -> None:
    """Change to `user` for good, without any groups. Raises PermissionError where it could not get
    to `library`.
    """
    folder = library
    while folder != "/":
        if not os.stat(folder).st_mode & 0o001:
            raise PermissionError(
                f"the interpreter lies below {folder}, which other users cannot enter"
            )
        folder = os.path.dirname(folder)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def at_most(which: int, wanted: int) -> int:
    """`wanted`, or the hard limit that this process has already, if that is less."""
    hard = resource.getrlimit(which)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)


class ProcessWalls:
    """The walls of a leaf, prepared once by the zygote: limits, then no more processes. Raises
    OSError.

    `threads`: how many its user may have; 0 where that user is not the family's own.
    """

    def __init__(
        self, limits: Limits, *, cpu_seconds: int, memory_mb: int, threads: int = 0
    ) -> None:
        stack = at_most(resource.RLIMIT_STACK, limits.stack_mb * MIB)
        space = at_most(resource.RLIMIT_AS, (ADDRESS_SPACE_MB + memory_mb) * MIB)
        self.limits = (
            (resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1)),
            (resource.RLIMIT_DATA, (memory_mb * MIB, memory_mb * MIB)),
            (resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files)),
            (resource.RLIMIT_STACK, (stack, stack)),
            (resource.RLIMIT_AS, (space, space)),
            *([(resource.RLIMIT_NPROC, (threads, threads))] if threads else []),
        )
        for which, (_, wanted) in self.limits:
            if (most := at_most(which, wanted)) < wanted:
                name = next(
                    name
                    for name in dir(resource)
                    if name[:7] == "RLIMIT_" and getattr(resource, name) == which
                )
                raise OSError(f"the hard limit {name} is {most} here, but the judge needs {wanted}")
        self.filter = seccomp.Filter(seccomp.process_filter())

    def enclose(self, parent: int) -> None:
        """The last step before untrusted code. Raises OSError."""
        os.setsid()
        kernel.die_with_parent(parent)
        for which, value in self.limits:
            resource.setrlimit(which, value)
        self.filter.load()
