"""The layers of the sandbox around untrusted code ("walls"), in the order in which to put them up.

A family, which is one zygote and all that it forks, gives up files, users, capabilities and most
system calls. Each forked process then gets its limits and gives up starting processes. No layer can
be undone from inside. Zygotes import this file, so it imports little: each fork pays for every
page.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from assay.sandbox import kernel, landlock, namespaces, seccomp
from assay.sandbox.kernel import MIB
from assay.sandbox.namespaces import AccessRules

ADDRESS_SPACE_MB = 16 * 1024
"""Address space beyond the memory: libraries and threads reserve much, and its page tables stay
small."""
THREADS = 256
"""Threads of one candidate process, where its user is the family's own."""


Step = tuple[Callable[..., object], tuple[Any, ...]]
"""A call and its arguments. Made before the fork: a look-up after it copies pages."""


class ProcessLimits(NamedTuple):
    """Resource limits of one forked process."""

    cpu_seconds: int
    memory_mb: int
    stack_mb: int
    open_files: int
    threads: int = 0
    """How many its user may have; 0 for no limit, where others use that user too."""
    deepest_mb: int = 0
    """To what it may raise its stack before untrusted code runs, which cannot."""
    reserve_mb: int = 0
    """By how much it may raise its memory's limit, to reserve what it does not use."""


def family(rules: AccessRules) -> dict[str, Callable[[], None]]:
    """The walls of a family by name, in their order. Each raises OSError where it is not
    available.
    """
    walls: dict[str, Callable[[], None]] = {"namespaces": partial(namespaces.enter, rules)}
    if rules.user is not None:
        walls["user"] = partial(change_user, rules.user, rules.library)
    return walls | {
        "landlock": partial(
            landlock.restrict, rules.readable, rules.listable, (rules.work_dir,), (rules.temporary,)
        ),
        "capabilities": kernel.drop_capabilities,
        "seccomp": lambda: seccomp.Filter(
            seccomp.family_filter(rules.starts_programs, bool(rules.work_dir), rules.sets_modes)
        ).load(),
    }


def enclose_family(rules: AccessRules, required: Collection[str]) -> None:
    """Put the `required` walls around this process and all that it forks. Raises OSError."""
    is_namespaced = "namespaces" in required
    limit_family(
        (namespaces.WORK_MB if is_namespaced else namespaces.FILE_MB) if rules.work_dir else 1
    )
    for name, wall in family(rules).items():
        if name in required:
            wall()
    kernel.hide()


def limit_family(file_mb: int = 1) -> None:
    """No new privileges, no core files, no files that grow. Raises OSError."""
    kernel.forgo_privileges()
    for name, value in (("CORE", 0), ("MEMLOCK", 0), ("FSIZE", file_mb * MIB)):
        kernel.set_limit(name, value)


def change_user(user: int, library: str) -> None:
    """Change to `user` for good, without groups. Raises PermissionError where that user could not
    reach `library`.
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


def at_most(which: int, value: int) -> int:
    """`value`, or this process's hard limit if that is lower."""
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(hard, value)


def process_walls(
    limits: ProcessLimits, parent: int, filtered: bool = True, hides: bool = False
) -> list[Step]:
    """The last steps before untrusted code, for forks of `parent`. Each raises OSError.

    `filtered` is false for a process that loads a filter of its own before it execs; `hides` is
    true for one that becomes undumpable later. Raises OSError where a hard limit is too low.
    """
    memory, cpu_seconds = limits.memory_mb * MIB, limits.cpu_seconds
    reserved = at_most(resource.RLIMIT_DATA, memory + limits.reserve_mb * MIB)
    deepest = at_most(resource.RLIMIT_STACK, max(limits.stack_mb, limits.deepest_mb) * MIB)
    stack = min(limits.stack_mb * MIB, deepest)
    space = at_most(resource.RLIMIT_AS, ADDRESS_SPACE_MB * MIB + memory)
    values = {
        "RLIMIT_CPU": (cpu_seconds, cpu_seconds + 1),
        "RLIMIT_DATA": (memory, max(memory, reserved)),
        "RLIMIT_NOFILE": (limits.open_files, limits.open_files),
        "RLIMIT_STACK": (stack, deepest),
        "RLIMIT_AS": (space, space),
        **({"RLIMIT_NPROC": (limits.threads, limits.threads)} if limits.threads else {}),
    }
    steps: list[Step] = [(os.setsid, ())]
    if parent != namespaces.FIRST:
        steps.append((kernel.die_with_parent, (parent,)))
    for name, value in values.items():
        which = getattr(resource, name)
        if (most := at_most(which, value[1])) < value[1]:
            raise OSError(f"the hard limit {name} is {most} here, but the judge needs {value[1]}")
        steps.append((resource.setrlimit, (which, value)))
    return steps + (
        [(seccomp.Filter(seccomp.process_filter(hides=hides)).load, ())] if filtered else []
    )


def put_up(steps: Sequence[Step]) -> None:
    """Put up walls around this process. Raises OSError."""
    for call, arguments in steps:
        call(*arguments)
