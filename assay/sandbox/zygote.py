"""Forks pairs on command: a leaf for untrusted code and a worker that talks to it. Never runs either's code itself.

The supervisor writes `["spawn"]` or `["reap", [pid, ...]]`; a pair is answered with pids and four descriptors (the
worker's control socket, what the leaf prints, and a pidfd of each), a reaping with what each process used.
"""

from __future__ import annotations

import array
import gc
import json
import os
import random
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from assay.sandbox import kernel, walls

if TYPE_CHECKING:
    from assay.sandbox.limits import Limits

MESSAGE = 65_536
WORKER_MEMORY_MB = 1024
FIRST_FD, SPARE_FD = 3, 100
SPARE_CPU = 2
"""Whole seconds that RLIMIT_CPU leaves over the limit; the supervisor's timer is the exact one."""


class Role(NamedTuple):
    """What a fork becomes: its walls, and its work."""

    walls: walls.LeafWalls
    work: Callable[[], None]

    def take(self, descriptors: list[int], parent: int) -> NoReturn:
        """Turn this fork into the role, holding `descriptors` as 3 and on and nothing else; never returns."""
        try:
            for at, descriptor in enumerate([os.dup2(old, SPARE_FD + at) for at, old in enumerate(descriptors)]):
                os.dup2(descriptor, FIRST_FD + at)
            kernel.close_from(FIRST_FD + len(descriptors))
            self.walls.enclose(parent)
            self.work()
        finally:
            os._exit(0)  # whatever happened: a fork must never return into its parent's loop


def serve(control_fd: int, leaf: Callable[[], None], worker: Callable[[], None]) -> None:
    """Fork pairs until the supervisor hangs up. The first message is the settings: limits, required, and Allowed."""
    parent = os.getppid()
    control = socket.socket(fileno=control_fd)
    settings = json.loads(control.recv(MESSAGE))
    limits = cast("Limits", SimpleNamespace(**settings["limits"]))
    try:
        walls.enclose_family(*(settings[name] for name in ("user", "readable", "listable", "required")))
    except OSError as error:
        control.send(json.dumps(["failed", str(error)]).encode())
        return
    kernel.die_with_parent(parent)
    cpu, wall = int(limits.cpu_seconds) + SPARE_CPU, int(limits.wall_seconds) + SPARE_CPU
    leaf_role = Role(walls.LeafWalls(limits, cpu_seconds=cpu, memory_mb=limits.memory_mb), leaf)
    worker_role = Role(walls.LeafWalls(limits, cpu_seconds=wall, memory_mb=WORKER_MEMORY_MB), worker)
    random.seed(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(b'["ready"]')
    while message := control.recv(MESSAGE):
        command, *parts = json.loads(message)
        if command == "spawn":
            spawn(control, leaf_role, worker_role)
        else:
            control.send(json.dumps(["reaped", *map(reaped, parts[0])]).encode())


def reaped(pid: int) -> list[float]:
    """What a process that has ended used: pid, status as of wait(2), CPU seconds, peak MiB."""
    _, status, used = os.wait4(pid, 0)
    return [pid, status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]


def spawn(control: socket.socket, leaf: Role, worker: Role) -> None:
    """Fork one pair and hand its descriptors to the supervisor."""
    leaf_end, worker_end = socket.socketpair()
    control_end, worker_control = socket.socketpair()
    printed, prints = os.pipe()
    mine = os.getpid()
    leaf_pid = kernel.fork()
    if leaf_pid == 0:
        os.dup2(prints, 1)
        os.dup2(prints, 2)
        leaf.take([leaf_end.fileno()], mine)
    worker_pid = kernel.fork()
    if worker_pid == 0:
        worker.take([worker_end.fileno(), worker_control.fileno()], mine)
    handed = [control_end.detach(), printed, os.pidfd_open(leaf_pid), os.pidfd_open(worker_pid)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handed))]
    control.sendmsg([json.dumps(["pair", leaf_pid, worker_pid]).encode()], rights)
    for descriptor in (*handed, prints):
        os.close(descriptor)
    for end in (leaf_end, worker_end, worker_control):
        end.close()
