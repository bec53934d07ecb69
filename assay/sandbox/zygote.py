"""Forks pairs on command: a leaf for untrusted code and a worker that talks to it. Never runs either's code itself.

The supervisor writes `["spawn"]` or `["reap", [pid, ...]]`; a pair is answered with pids and four descriptors (the worker's
control socket, what the leaf prints, and a pidfd of each), a reaping with what each process used.
"""

from __future__ import annotations

import array
import gc
import json
import os
import random
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from assay.sandbox import kernel, walls
from assay.sandbox.limits import Limits

MESSAGE = 65_536
WORKER_MEMORY_MB = 1024
LEAF_FD, CONTROL_FD = 3, 4
SPARE_CPU = 2
"""Whole seconds that RLIMIT_CPU leaves over the limit; the supervisor's timer is the exact one."""


def serve(control_fd: int, leaf: Callable[[], None], worker: Callable[[], None]) -> None:
    """Fork pairs until the supervisor hangs up. The first message is the settings: `slot`, `required`, `limits`."""
    parent = os.getppid()
    control = socket.socket(fileno=control_fd)
    settings = json.loads(control.recv(MESSAGE))
    limits = Limits(**settings["limits"])
    try:
        walls.enclose_family(settings["slot"], settings["required"])
    except OSError as error:
        control.send(json.dumps(["failed", str(error)]).encode())
        return
    kernel.die_with_parent(parent)
    random.seed(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(b'["ready"]')
    while message := control.recv(MESSAGE):
        command, *parts = json.loads(message)
        if command == "spawn":
            spawn(control, limits, leaf, worker)
        else:
            control.send(json.dumps(["reaped", *map(reaped, parts[0])]).encode())


def reaped(pid: int) -> list[float]:
    """What a process that has ended used: pid, status as of wait(2), CPU seconds, peak MiB."""
    _, status, used = os.wait4(pid, 0)
    return [pid, status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]


def spawn(control: socket.socket, limits: Limits, leaf: Callable[[], None], worker: Callable[[], None]) -> None:
    """Fork one pair and hand its descriptors to the supervisor."""
    leaf_end, worker_end = socket.socketpair()
    control_end, worker_control = socket.socketpair()
    printed, prints = os.pipe()
    mine = os.getpid()
    leaf_pid = os.fork()
    if leaf_pid == 0:
        os.dup2(prints, 1)
        os.dup2(prints, 2)
        memory, cpu = limits.memory_mb, limits.cpu_seconds
        become(leaf, [leaf_end.detach()], mine, limits, cpu_seconds=int(cpu) + SPARE_CPU, memory_mb=memory)
    worker_pid = os.fork()
    if worker_pid == 0:
        descriptors = [worker_end.detach(), worker_control.detach()]
        cpu = limits.wall_seconds
        become(worker, descriptors, mine, limits, cpu_seconds=int(cpu) + SPARE_CPU, memory_mb=WORKER_MEMORY_MB)
    handed = [control_end.detach(), printed, os.pidfd_open(leaf_pid), os.pidfd_open(worker_pid)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handed))]
    control.sendmsg([json.dumps(["pair", leaf_pid, worker_pid]).encode()], rights)
    for descriptor in (*handed, prints):
        os.close(descriptor)
    for end in (leaf_end, worker_end, worker_control):
        end.close()


def become(
    role: Callable[[], None],
    descriptors: list[int],
    parent: int,
    limits: Limits,
    *,
    cpu_seconds: int,
    memory_mb: int,
) -> NoReturn:
    """Turn this fork into a leaf or a worker that holds `descriptors`, as 3 and on, and nothing else; never returns."""
    status: Any = 1
    try:
        kept = [os.dup(descriptor) for descriptor in descriptors]
        spread = [os.dup2(descriptor, 100 + at) for at, descriptor in enumerate(kept)]
        for at, descriptor in enumerate(spread):
            os.dup2(descriptor, LEAF_FD + at)
        kernel.close_from(LEAF_FD + len(descriptors))
        walls.enclose_leaf(parent, limits, cpu_seconds=cpu_seconds, memory_mb=memory_mb)
        role()
        status = 0
    except BaseException:  # a fork must never return into its parent's loop
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(status)
