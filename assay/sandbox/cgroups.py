"""Control groups, version 1 or 2: one for each slot bounds the memory of all its processes and how
many they are.

It catches what the limits of one process do not count: pipes, page tables, kernel memory, the cache
of files.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from assay.sandbox.kernel import said

NAME = re.compile(r"assay-(\d+)-(\d+)-\w+")
"""A group's name: the pid and the start of the process that made it, and what it is for."""
PROCESSES = "cgroup.procs"
LIMITS = {
    "memory.limit_in_bytes": "memory", "memory.memsw.limit_in_bytes": "memory",  # version 1
    "memory.max": "memory", "memory.swap.max": "swap", "pids.max": "processes",
}  # fmt: skip
"""Files and what they limit; those for swap are absent where it is not counted."""
KILLS = ("memory.oom_control", "memory.events")


@dataclass(slots=True)
class Group:
    """One group, to which processes are added and whose children inherit it."""

    folders: tuple[Path, ...]
    """One for memory and one for processes, or one for both."""
    kills: int = 0

    def limit(self, memory: int, processes: int) -> None:
        """At most so many bytes, none of them swapped, and so many threads. Raises OSError."""
        values = {"memory": memory, "processes": processes, "swap": 0}
        for file, what in (
            (folder / name, what) for folder in self.folders for name, what in LIMITS.items()
        ):
            if file.exists():
                file.write_text(str(values[what]))

    def add(self, pid: int) -> None:
        """Put a process into it. Raises OSError."""
        for folder in self.folders:
            (folder / PROCESSES).write_text(str(pid))

    def killed(self) -> bool:
        """Whether the kernel has killed in it, for want of memory, since this was last asked."""
        lines = [
            line.split()
            for folder in self.folders
            for name in KILLS
            for line in said(folder / name).splitlines()
        ]
        before, self.kills = (
            self.kills,
            sum(int(line[1]) for line in lines if line[0] == "oom_kill"),
        )
        return self.kills > before

    def remove(self) -> None:
        """Let go of it; one that still has processes stays."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def make(name: str, memory: int, processes: int) -> Group:
    """A group for this process's children, found by its name or made. Raises OSError where none can
    be had.
    """
    name = f"assay-{os.getpid()}-{started(os.getpid())}-{name}"
    group = Group(tuple(parent / name for parent in parents()))
    try:
        for folder in group.folders:
            folder.mkdir(exist_ok=True)
        group.limit(memory, processes)
        group.killed()
    except OSError:
        group.remove()
        raise
    return group


def remove_leftovers() -> None:
    """Remove the groups of processes that have ended without doing so."""
    with contextlib.suppress(OSError):
        for parent in parents():
            for folder in parent.glob("assay-*"):
                name = NAME.fullmatch(folder.name)
                if name and started(int(name[1])) != int(name[2]):
                    Group((folder,)).remove()


def parents() -> tuple[Path, ...]:
    """The folders in which groups that limit memory, and processes, may be made. Raises OSError
    where there are none.

    In version 1, the groups that we are in; in version 2, the nearest above that hands both
    controllers down, since one that has processes cannot.
    """
    mounted = hierarchies()
    if {"memory", "pids"} <= mounted.keys():
        return mounted["memory"], mounted["pids"]
    for folder in (mounted[""], *mounted[""].parents) if "" in mounted else ():
        if {"memory", "pids"} <= set(said(folder / "cgroup.subtree_control").split()):
            return (folder,)
    raise FileNotFoundError("no control group here limits memory and processes")


def started(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 where there is none. A pid alone may
    be used again.
    """
    _, _, fields = said(f"/proc/{pid}/stat").rpartition(")")
    return int(fields.split()[19]) if fields else 0


def hierarchies() -> dict[str, Path]:
    """Our own group's folder for each controller of version 1, and by the empty name for version
    2.
    """
    own = [line.split(":", 2)[1:] for line in said("/proc/self/cgroup").splitlines()]
    found: dict[str, Path] = {}
    for line in said("/proc/self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        _, _, _, root, folder, *_ = place.split()
        kind, _, options = kind.split(maxsplit=2)
        for names, path in own:
            belongs = (
                set(names.split(",")) <= set(options.split(","))
                if kind == "cgroup"
                else names == ""
            )
            if kind in ("cgroup", "cgroup2") and belongs and f"{path}/".startswith(root):
                found |= dict.fromkeys(names.split(","), Path(folder) / os.path.relpath(path, root))
    return found
