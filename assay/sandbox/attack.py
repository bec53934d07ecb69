"""A program that puts up the walls around itself, attacks them one by one and prints the results
as JSON.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from assay.sandbox import cgroups, kernel, walls
from assay.sandbox.access import access_rules
from assay.sandbox.kernel import MIB
from assay.sandbox.seccomp import MAP_GROWSDOWN
from assay.sandbox.users import claim_user

PARENT = os.getppid()
SERVER = f"\0assay-{os.getpid()}"
"""The address of a socket outside the sandbox."""
LIMITS = walls.ProcessLimits(cpu_seconds=10, memory_mb=256, stack_mb=64, open_files=32)
GROUP_MB, GROUP_PROCESSES, PIPES = 32, 16, 60
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
PTRACE_ATTACH = 16
Attack = Callable[[], object]


def fork() -> None:
    """Start a process."""
    if os.fork() == 0:
        os._exit(0)


def speak_to_host() -> None:
    """Send a message to an abstract socket of the host."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.sendto(b"", SERVER)


def see_processes() -> None:
    """Ask whether processes of the host exist."""
    for pid in {1, PARENT} - {os.getpid()}:
        os.getsid(pid)


ATTACKS: dict[str, Attack] = {
    "processes": fork,
    "programs": lambda: os.execv("/bin/true", ["true"]),
    "other processes": lambda: os.kill(os.getppid(), 0),
    "tracing": lambda: kernel.checked(
        kernel.libc.ptrace(PTRACE_ATTACH, os.getppid(), 0, 0), "ptrace"
    ),
    "reading files": lambda: Path(__file__).read_bytes(),
    "writing files": lambda: Path(f"/tmp/assay-probe-{os.getpid()}").write_text(""),
    "network": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    # memory that RLIMIT_DATA does not count; then far more than there is, for its page tables
    "shared memory": lambda: mmap.mmap(-1, 4096).close(),
    "stacks": lambda: mmap.mmap(-1, 4096, flags=PRIVATE | MAP_GROWSDOWN).close(),
    "page tables": lambda: mmap.mmap(
        -1, 100 * 1024 * MIB, flags=PRIVATE, prot=mmap.PROT_READ
    ).close(),
    "memory": lambda: ctypes.create_string_buffer(512 * MIB),
    "mounting": lambda: kernel.checked(
        kernel.libc.mount(b"none", b"/usr", b"tmpfs", 0, None), "mount"
    ),
    "sockets of the host": speak_to_host,
}
HIDING: dict[str, Attack] = {
    "looking at files": lambda: Path(__file__).stat(),
    "seeing processes": see_processes,
}
"""Stopped by namespaces only. These reveal names, sizes and times, but no contents."""


def attacked(attacks: dict[str, Attack]) -> tuple[list[str], dict[str, str]]:
    """Names of the attacks that failed, and of those that got through with the reason."""
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


def overrun_group() -> None:
    """Let a child exceed its control group. Raises OSError where that works, or where there is no
    group.
    """
    group = cgroups.make("probe", GROUP_MB * MIB, GROUP_PROCESSES)
    try:
        go, goes = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            multiply()
            fill_pipes()
            os._exit(0)
        group.add(child)
        os.write(goes, b".")
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status) or not group.killed():
            raise PermissionError("a program exceeded it")
    finally:
        group.remove()


def multiply() -> None:
    """Start more processes than the group may have; exits where that works."""
    try:
        for _ in range(2 * GROUP_PROCESSES):
            if os.fork() == 0:
                os._exit(0)
    except BlockingIOError:
        return
    os._exit(1)


def fill_pipes() -> None:
    """Fill pipes beyond the group's memory, which no limit of one process counts."""
    for _ in range(PIPES):
        _, full = os.pipe()
        fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, MIB)
        os.write(full, bytes(MIB))


def why_unavailable(wall: Callable[[], None]) -> str:
    """Put up a wall in a child. Returns why that fails, or an empty string."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wall()
            os.write(writer, b".")
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, MIB).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return "" if answer == "." else answer or "it ends the process"


def main() -> None:
    """Put up each wall that is available, attack, print the results."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(SERVER)
    kernel.die_first()  # as every zygote does
    walls.limit_family()
    claim = claim_user()
    rules, up = access_rules(claim.user), []
    refused = {"group": why} if (why := why_unavailable(overrun_group)) else {}
    for name, wall in walls.family(rules).items():
        if why := why_unavailable(wall):
            refused[name] = why
        else:
            wall()
            up.append(name)
    try:
        kernel.hide()
        walls.put_up(walls.process_walls(LIMITS, os.getppid()))
    except OSError as error:
        refused["limits"] = str(error)
    stood, failed = attacked(ATTACKS | HIDING)
    up += [] if "group" in refused else ["group"]
    sys.stdout.write(json.dumps({"walls": up, "stood": stood, "failed": failed | refused}))


if __name__ == "__main__":
    main()
