"""The walls around untrusted code, in the order they go up, and what of them this machine allows.

A family (one zygote and all it forks) first gives up files, users, capabilities and most system calls; each leaf then takes
its limits and gives up processes. Nothing of this can be undone from inside.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from assay.sandbox import kernel, landlock, seccomp
from assay.sandbox.limits import Limits

PACKAGES = ("numpy", "scipy", "pandas", "sympy", "mpmath", "networkx", "sortedcontainers", "dateutil", "pytz", "six.py")
"""Third-party packages that a program may import where they are installed; no other file of site-packages can be read."""
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
             "/dev/null", "/dev/urandom")  # fmt: skip
FIRST_USER = 60_000
MIB = 1024 * 1024
ACCEPTABLE = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the walls are on this machine, found by trying."""

    tier: str
    """A to E; A, B and C are sound, D lets programs read files, E hardly holds."""
    enforced: tuple[str, ...]
    """Walls that stood when attacked."""
    missing: tuple[str, ...]
    """Walls that could not be had, each with the reason."""
    advice: str
    """What to do about it; empty where nothing is missing that matters."""

    @property
    def sound(self) -> bool:
        """Whether verdicts on untrusted programs can be believed here without the user's say."""
        return self.tier in ACCEPTABLE


def library_folders() -> list[Path]:
    """Where the standard library lies; site-packages may be inside, and is left out by `readable`."""
    names = ("stdlib", "platstdlib")
    return list({Path(sysconfig.get_path(name, vars=_base())).resolve() for name in names})


def readable() -> list[Path]:
    """Everything that a program may read: the standard library, shared libraries, and the PACKAGES."""
    paths = [Path(name) for name in LIBRARIES]
    for folder in library_folders():
        paths += [entry for entry in folder.iterdir() if entry.name not in ("site-packages", "dist-packages", "test")]
    for folder in package_folders():
        paths += [folder / name for package in PACKAGES for name in (package, f"{package}.libs")]
    return paths


def package_folders() -> list[Path]:
    """The folders on the path that hold third-party packages: their names may be listed."""
    return [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]


def enclose_family(slot: int, required: bool = True) -> None:
    """Wall in this process and all it will fork. With `required`, raises OSError where a wall cannot be had."""
    kernel.forgo_privileges()
    walls = (
        lambda: become_nobody(FIRST_USER + slot),
        lambda: landlock.restrict(readable(), [*package_folders(), *library_folders()]),
        lambda: kernel.drop_capabilities(),
        lambda: seccomp.load(seccomp.family_filter()),
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
    return all(
        os.stat(folder).st_mode & 0o001 for library in library_folders() for folder in (library, *library.parents)
    )


def enclose_leaf(parent: int, limits: Limits, *, cpu_seconds: int, memory_mb: int) -> None:
    """Take limits and give up processes; the last step before untrusted code. Raises OSError."""
    os.setsid()
    kernel.die_with_parent(parent)
    for which, value in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_DATA, memory_mb * MIB),
        (resource.RLIMIT_FSIZE, MIB),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(which, (value, value + (which == resource.RLIMIT_CPU)))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = limits.stack_mb * MIB if hard == resource.RLIM_INFINITY else min(hard, limits.stack_mb * MIB)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
    seccomp.load(seccomp.leaf_filter(os.getpid()))


@functools.cache
def probe() -> Isolation:
    """Try every wall in a child of its own and attack it there; the answer is kept for this process."""
    command = [sys.executable, "-I", "-m", "assay.sandbox.attack"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd="/")
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Isolation("E", (), (f"everything: the probe did not finish ({type(error).__name__})",), ADVICE["E"])
    return graded(found["stood"], found["failed"], root=os.getuid() == 0)


def graded(stood: list[str], failed: dict[str, str], root: bool) -> Isolation:
    """The tier that walls amount to: `stood` when attacked, or `failed` with a reason."""
    if {"processes", "other processes"} & failed.keys():
        tier = "E"
    elif {"reading files", "writing files"} & failed.keys():
        tier = "D"
    else:
        tier = "B" if root and "another user" in stood else "C"
    missing = tuple(f"{wall}: {reason}" for wall, reason in failed.items())
    return Isolation(tier, tuple(stood), missing, ADVICE[tier])


ADVICE = {
    "B": "",
    "C": "",
    "D": "landlock is missing, so programs could read this user's files: use Linux 5.13 or newer with landlock in its lsm= list",
    "E": "system call filters are missing: run on Linux (x86-64 or aarch64) outside gVisor or proot",
}


def _base() -> dict[str, str]:
    """Paths of the interpreter itself, not of a virtual environment around it."""
    return {"installed_base": sys.base_prefix, "base": sys.base_prefix, "platbase": sys.base_exec_prefix,
            "installed_platbase": sys.base_exec_prefix}  # fmt: skip
