"""Forks leaves, for untrusted code, and workers, that talk to them; never runs the code of either
itself.

The supervisor writes `["leaf", count]`, `["worker"]` or `["reap", [pid, ...]]`. A leaf is answered
with its pid and three descriptors: the other end of its socket, what it prints, a pidfd; a worker
with its pid, its control socket and a pidfd; a reaping with what each process used.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from assay.sandbox import kernel, namespaces, walls

if TYPE_CHECKING:
    from assay.sandbox.access import AccessRules
    from assay.sandbox.limits import Limits

MESSAGE = 65_536
WORKER_MEMORY_MB, WORKER_CPU_SECONDS = 1024, 100_000
ROLE_FD = 3
"""Where a leaf finds its socket to the worker, and a worker its own to the supervisor."""
PAUSES = (0.02, 0.1, 0.4)
"""Seconds between attempts to fork."""
LONGEST, SPARE_CPU = 10, 2
"""RLIMIT_CPU leaves room for the longest that a task may have (limits.LONGEST); the supervisor's
timer is exact."""


class Role(NamedTuple):
    """What a fork becomes: its walls, and its work."""

    walls: walls.ProcessWalls
    work: Callable[[], None]

    def take(self, descriptor: int, parent: int) -> NoReturn:
        """Turn this fork into the role, left with `descriptor` and the standard streams; never
        returns.
        """
        try:
            try:
                os.dup2(
                    os.open(os.devnull, os.O_RDONLY), 0
                )  # its own: flags of one that is shared stay after it
                os.dup2(descriptor, ROLE_FD)
                kernel.close_from(ROLE_FD + 1)
                self.walls.enclose(parent)
            except (OSError, ValueError, MemoryError):
                signal.raise_signal(
                    signal.SIGKILL
                )  # any other end would be taken for the program's
            self.work()
        finally:
            os._exit(0)  # whatever happened: a fork must never return into its parent's loop


def serve(control_fd: int, leaf: Callable[[], None], worker: Callable[[], None]) -> None:
    """Fork until the supervisor hangs up. The first message is the settings.

    These are: limits, required walls, core, reach, and the threads of a user that is the family's
    own.
    """
    parent = os.getppid()
    control = socket.socket(fileno=control_fd)
    settings = json.loads(control.recv(MESSAGE))
    os.sched_setaffinity(0, {settings["core"]})
    kernel.die_first()
    limits = cast("Limits", SimpleNamespace(**settings["limits"]))
    room = cast("Limits", SimpleNamespace(**{**settings["limits"], "open_files": many_files()}))
    reach = cast("AccessRules", SimpleNamespace(**settings["reach"]))
    cpu_seconds = int(limits.cpu_seconds * LONGEST) + SPARE_CPU
    try:
        walls.enclose_family(reach, settings["required"])
        kernel.die_with_parent(
            namespaces.OUTSIDE if "namespaces" in settings["required"] else parent
        )
        threads = settings["threads"] if os.getuid() == reach.user else 0
        candidate_walls = walls.ProcessWalls(
            limits, cpu_seconds=cpu_seconds, memory_mb=limits.memory_mb, threads=threads
        )
        worker_walls = walls.ProcessWalls(
            room, cpu_seconds=WORKER_CPU_SECONDS, memory_mb=WORKER_MEMORY_MB
        )
        random.seed(0)
        gc.collect()
        gc.freeze()
        gc.disable()
        control.send(b'["ready"]')
        obey(control, Role(candidate_walls, leaf), Role(worker_walls, worker))
    except OSError as error:
        control.send(json.dumps(["failed", str(error)]).encode())


def obey(control: socket.socket, leaf: Role, worker: Role) -> None:
    """Fork and reap on command. Raises OSError where the machine cannot."""
    while message := control.recv(MESSAGE):
        command, *parts = json.loads(message)
        if command == "leaf":
            fork_candidates(control, leaf, parts[0])
        elif command == "worker":
            fork_worker(control, worker)
        else:
            control.send(json.dumps(["reaped", *map(reaped, parts[0])]).encode())


def many_files() -> int:
    """All the descriptors this process may have; the kernel holds what a user has under way to that
    number too.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def reaped(pid: int) -> list[float]:
    """What a process that has ended used: pid, status as of wait(2), CPU seconds, peak MiB."""
    _, status, used = os.wait4(pid, 0)
    return [pid, status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]


def forked() -> int:
    """A fork; tried again for some seconds where the machine has no room for another process.
    Raises OSError.
    """
    for pause in PAUSES:
        try:
            return kernel.fork()
        except OSError:
            time.sleep(pause)
    return kernel.fork()


def fork_candidates(control: socket.socket, leaf: Role, count: int) -> None:
    """Fork leaves and hand their descriptors to the supervisor.

    The forks follow on each other at once: each makes this process copy every page that it touches
    until the next.
    """
    ends = [(*socket.socketpair(), *os.pipe()) for _ in range(count)]
    mine, pids = os.getpid(), []
    for inside, _, _, prints in ends:
        pid = forked()
        if pid == 0:
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            leaf.take(inside.fileno(), mine)
        pids.append(pid)
    for pid, (inside, outside, printed, prints) in zip(pids, ends, strict=True):
        os.close(prints)
        inside.close()
        hand_over(control, ["leaf", pid], [outside.detach(), printed, os.pidfd_open(pid)])


def fork_worker(control: socket.socket, worker: Role) -> None:
    """Fork one worker and hand its descriptors to the supervisor."""
    inside, outside = socket.socketpair()
    mine = os.getpid()
    pid = forked()
    if pid == 0:
        worker.take(inside.fileno(), mine)
    inside.close()
    hand_over(control, ["worker", pid], [outside.detach(), os.pidfd_open(pid)])


def hand_over(control: socket.socket, message: list[object], descriptors: list[int]) -> None:
    """Send descriptors, and keep none of them."""
    socket.send_fds(control, [json.dumps(message).encode()], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
