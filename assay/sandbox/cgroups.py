"""Control groups, v1 or v2: one for each slot limits the memory and the number of its processes.

They count what the limits of one process do not: pipes, page tables, kernel memory, the page cache.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from assay.sandbox.kernel import is_leftover, own_name, read_text

PROCESSES = "cgroup.procs"
LIMITS = {
    "memory.limit_in_bytes": "memory", "memory.memsw.limit_in_bytes": "memory",  # version 1
    "memory.max": "memory", "memory.swap.max": "swap", "pids.max": "processes",
}  # fmt: skip
"""Files and what they limit; those for swap are absent where swap is not counted."""
ENDED_SECONDS = 0.1
"""How long to wait for processes that have ended to leave their group."""
KILLS = ("memory.oom_control", "memory.events")


@dataclass(slots=True)
class Group:
    """One group. The children of its processes are in it too."""

    folders: tuple[Path, ...]
    """One for memory and one for processes (v1), or one for both (v2); none limits nothing."""
    kills: int = 0

    def limit(self, memory: int, processes: int) -> None:
        """Limit memory in bytes, without swap, and the number of threads. Raises OSError."""
        values = {"memory": memory, "processes": processes, "swap": 0}
        for file, what in (
            (folder / name, what) for folder in self.folders for name, what in LIMITS.items()
        ):
            if file.exists():
                file.write_text(str(values[what]))

    def add(self, pid: int) -> None:
        """Add a process. Raises OSError."""
        for folder in self.folders:
            (folder / PROCESSES).write_text(str(pid))

    def killed(self) -> bool:
        """Whether the kernel has killed a process of it for memory since the last call."""
        lines = [
            line.split()
            for folder in self.folders
            for name in KILLS
            for line in read_text(folder / name).splitlines()
        ]
        before = self.kills
        self.kills = sum(int(line[1]) for line in lines if line[0] == "oom_kill")
        return self.kills > before

    def remove(self, seconds: float = 0.0) -> None:
        """Remove it, unless it still has processes so many seconds later: the kernel may take one
        out of it only after who waited for that one has gone on.
        """
        end = time.monotonic() + seconds
        for folder in self.folders:
            while not is_removed(folder) and time.monotonic() < end:
                time.sleep(0.001)


def is_removed(folder: Path) -> bool:
    """Remove a group's folder. Whether it is gone."""
    try:
        folder.rmdir()
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


def make(name: str, memory: int, processes: int) -> Group:
    """A group for this process's children, made unless it exists. Raises OSError."""
    group = Group(tuple(parent / own_name(name) for parent in parents()))
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
    """Remove the groups of processes that ended without removing them."""
    with contextlib.suppress(OSError):
        for parent in parents():
            for folder in parent.glob("assay-*"):
                if is_leftover(folder.name):
                    Group((folder,)).remove()


def parents() -> tuple[Path, ...]:
    """The folders in which to make groups that limit memory and processes. Raises OSError where
    there are none.

    In v1 these are our own groups; in v2 the nearest group above that enables both controllers for
    its children, which a group with processes cannot.
    """
    mounted = hierarchies()
    if {"memory", "pids"} <= mounted.keys():
        return mounted["memory"], mounted["pids"]
    for folder in (mounted[""], *mounted[""].parents) if "" in mounted else ():
        if {"memory", "pids"} <= set(read_text(folder / "cgroup.subtree_control").split()):
            return (folder,)
    raise FileNotFoundError("no control group here limits memory and processes")


def hierarchies() -> dict[str, Path]:
    """Our own group's folder for each controller of v1, and under the empty name for v2."""
    memberships = [line.split(":", 2)[1:] for line in read_text("/proc/self/cgroup").splitlines()]
    folders: dict[str, Path] = {}
    for line in read_text("/proc/self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        _, _, _, root, folder, *_ = place.split()
        kind, _, options = kind.split(maxsplit=2)
        for names, path in memberships:
            belongs = (
                set(names.split(",")) <= set(options.split(","))
                if kind == "cgroup"
                else names == ""
            )
            if kind in ("cgroup", "cgroup2") and belongs and f"{path}/".startswith(root):
                folders |= dict.fromkeys(
                    names.split(","), Path(folder) / os.path.relpath(path, root)
                )
    return folders
