"""Puts up the walls in its own process and attacks them one by one; run as a program, prints what stood as JSON."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from assay.sandbox import kernel, walls
from assay.sandbox.allowed import allowed
from assay.sandbox.limits import Limits
from assay.sandbox.seccomp import MAP_GROWSDOWN


def fork() -> None:
    """Start a process."""
    if os.fork() == 0:
        os._exit(0)


def execute() -> None:
    """Become another program."""
    os.execv("/bin/true", ["true"])


def signal_parent() -> None:
    """Ask whether the parent may be signalled."""
    os.kill(os.getppid(), 0)


def read_own_package() -> None:
    """Read a file that lies outside the allow-list."""
    Path(__file__).read_bytes()


def write_temporary() -> None:
    """Make a file."""
    Path(f"/tmp/assay-probe-{os.getpid()}").write_text("")


def connect() -> None:
    """Open a socket of the network."""
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()


def trace_parent() -> None:
    """Attach to the parent as a debugger."""
    kernel.checked(kernel.libc.ptrace(16, os.getppid(), 0, 0), "ptrace")


def share_memory() -> None:
    """Map memory that RLIMIT_DATA does not count."""
    mmap.mmap(-1, 4096).close()


def grow_stacks() -> None:
    """Map memory that counts as a stack."""
    mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_GROWSDOWN).close()


def fill_page_tables() -> None:
    """Map far more than there is, to be read only: its page tables are no limit's concern."""
    mmap.mmap(-1, 100 * 1024 * walls.MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()


def hold_too_much() -> None:
    """Take more memory than allowed."""
    ctypes.create_string_buffer(512 * walls.MIB)


def be_root() -> None:
    """Be the user we started as, when that is root."""
    if os.getuid() != 0:
        raise PermissionError


ATTACKS: dict[str, Callable[[], None]] = {
    "processes": fork,
    "programs": execute,
    "other processes": signal_parent,
    "tracing": trace_parent,
    "reading files": read_own_package,
    "writing files": write_temporary,
    "network": connect,
    "shared memory": share_memory,
    "stacks": grow_stacks,
    "page tables": fill_page_tables,
    "memory": hold_too_much,
}


def attacked(attacks: dict[str, Callable[[], None]]) -> tuple[list[str], dict[str, str]]:
    """Names of the walls that stood, and those that did not with the reason."""
    stood: list[str] = []
    failed: dict[str, str] = {}
    for name, attack in attacks.items():
        try:
            attack()
        except (OSError, MemoryError):
            stood.append(name)
        else:
            failed[name] = "the attack got through"
    return stood, failed


def main() -> None:
    """Wall in, attack, report."""
    attacks, reach = dict(ATTACKS), allowed(slot=0)
    if os.getuid() == 0:
        attacks["another user"] = be_root
    refused: dict[str, str] = {}
    try:
        walls.enclose_family(reach.user, list(reach.readable), list(reach.listable), required=False)
        walls.LeafWalls(Limits(), cpu_seconds=10, memory_mb=256).enclose(os.getppid())
    except OSError as error:
        refused["walls"] = str(error)
    stood, failed = attacked(attacks)
    if "another user" in failed:
        failed["another user"] = "the interpreter lies in a folder that other users cannot enter"
    sys.stdout.write(json.dumps({"stood": stood, "failed": failed | refused}))


if __name__ == "__main__":
    main()
