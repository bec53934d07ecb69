"""Forks candidate processes, for untrusted code, and companions, which talk to them. Never runs the
code of either itself.

The supervisor writes `["candidate", count]`, `["companion", count]` or `["end", [pid, ...],
[file, ...]]`.
It reads `["candidate", pid, ...]` with three descriptors of each (the other end of its socket, its
output, a pidfd), `["companion", pid, ...]` with the control socket and a pidfd of each, and
`["ended", [pid, status, cpu_seconds, memory_mb], [status, ...], [file, ...]]`, with the statuses of
the others and a descriptor of each file that there is.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import json
import os
import random
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from assay.sandbox import kernel, landlock, namespaces
from assay.sandbox.kernel import MIB, MOST_FILES, ProcessEnd
from assay.sandbox.namespaces import AccessRules
from assay.sandbox.program import FETCHED
from assay.sandbox.walls import ProcessLimits, Step, enclose_family, process_walls, put_up
from assay.sandbox.work_dir import empty

MESSAGE = 65_536
ROLE_FD = 3
"""The descriptor of the zygote's own socket to the supervisor. In a fork it becomes that of the
fork's socket, so that whatever holds it can be prepared before the fork."""
PAUSES = (0.02, 0.1, 0.4)
"""Seconds between attempts to fork."""


class ZygoteSettings(NamedTuple):
    """The first message to a zygote."""

    required: list[str]
    """Walls that must be put up."""
    core: int
    """The CPU core on which it and its children run."""
    rules: AccessRules
    candidate: ProcessLimits
    """`threads` counts only where the family's processes are counted alone."""
    companion: ProcessLimits
    shown: bool
    """Whether an idle fork is dumpable, so that its user can open files of it, until it gets work.
    """


class Role(NamedTuple):
    """What a fork becomes: its walls, by steps, and its work."""

    walls: list[Step]
    work: Callable[[], None]
    folder: str = ""
    """Its own, which is emptied after each program; empty where it has none."""
    shown: bool = False
    """Whether its forks start dumpable."""


def become(steps: Sequence[Step], work: Callable[[], None]) -> NoReturn:
    """Turn this fork into a role, by steps that were prepared before it."""
    try:
        try:
            put_up(steps)
        except (OSError, ValueError, MemoryError):
            # any other end would be taken for the program's
            signal.raise_signal(signal.SIGKILL)
        work()
    finally:
        os._exit(0)  # whatever happened: a fork must never return into its parent's loop


Prepare = Callable[[str, socket.socket], Callable[[], None]]
"""From the family's work folder and the socket that a fork will have, prepares the work of a role
in the zygote."""


def serve(
    control_fd: int,
    candidate: Prepare,
    companion: Prepare | None = None,
) -> None:
    """Fork until the supervisor hangs up. The first message is ZygoteSettings."""
    parent = os.getppid()
    os.dup2(control_fd, ROLE_FD)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=ROLE_FD)
    role = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=ROLE_FD)
    settings = ZygoteSettings(*json.loads(control.recv(MESSAGE)))
    os.sched_setaffinity(0, {settings.core})
    required, rules = settings.required, AccessRules(*settings.rules)
    limits, companion_limits = ProcessLimits(*settings.candidate), settings.companion
    roles: dict[str, Role] = {}
    try:
        kernel.die_first()
        enclose_family(rules, required)
        kernel.die_with_parent(namespaces.OUTSIDE if "namespaces" in required else parent)
        if not namespaces.counts_alone(rules, required):
            limits = limits._replace(threads=0)
        close: list[Step] = [(os.closerange, (ROLE_FD + 1, MOST_FILES))]
        prepares = {"candidate": (candidate, limits), "companion": (companion, companion_limits)}
        for name, (prepare, most) in prepares.items():
            if prepare is not None:
                folder, steps = own_folder(rules, "landlock" in required, name)
                hides = settings.shown
                if name == "candidate" and steps:  # the supervisor counts the files that it holds
                    steps.append((kernel.reveal, ()))
                    hides = False
                filtered = not rules.starts_programs
                walls = process_walls(ProcessLimits(*most), os.getpid(), filtered, hides)
                if hides:
                    walls += [(role.recv, (1, int(socket.MSG_PEEK))), (kernel.hide, ())]
                work = prepare(rules.work_dir, role)
                roles[name] = Role(steps + close + walls, work, folder, settings.shown)
        bound_thread_stacks(limits.memory_mb * MIB // 2)
        random.seed(0)
        gc.collect()
        gc.freeze()
        gc.disable()
        control.send(b'["ready"]')
        obey(control, roles, rules.work_dir)
    except (OSError, ValueError) as error:
        control.send(json.dumps(["failed", str(error)]).encode())


def bound_thread_stacks(most: int) -> None:
    """Let threads of Python's have stacks of up to `most` bytes where a program asks for more:
    recursion in Python takes no stack. Whoever asks may reserve several: what is used is watched.
    """
    set_size = _thread.stack_size

    def stack_size(size: int = 0, /) -> int:
        """Return the thread stack size used when creating new threads."""
        before = set_size(min(size, most))
        _, reserved = resource.getrlimit(resource.RLIMIT_DATA)
        if size:
            resource.setrlimit(resource.RLIMIT_DATA, (reserved, reserved))
        return before

    _thread.stack_size = stack_size
    if threading := sys.modules.get("threading"):
        threading.stack_size = stack_size  # type: ignore[attr-defined]


def own_folder(rules: AccessRules, landlocked: bool, name: str) -> tuple[str, list[Step]]:
    """A folder below the work folder for one role, and the steps by which a fork comes to work in
    it, and to reach no other; nothing where processes write no files. What starts programs has the
    whole work folder. Raises OSError.
    """
    if not rules.work_dir or rules.starts_programs:
        return rules.work_dir, []
    folder = f"{rules.work_dir}/{name}"
    os.mkdir(folder, 0o700)
    steps: list[Step] = [(os.chdir, (folder,))]
    if landlocked:
        allowed = landlock.rules_of(rules.readable, rules.listable, (folder,))
        steps.append((landlock.enforce, (allowed,)))
    return folder, steps


def obey(control: socket.socket, roles: Mapping[str, Role], work_dir: str) -> None:
    """Fork and end on command. Raises OSError where the machine cannot."""
    while message := control.recv(MESSAGE):
        command, *parts = json.loads(message)
        if command != "end":
            pipes = [os.pipe() if command == "candidate" else () for _ in range(parts[0])]
            fork_processes(control, command, roles[command], pipes)
        else:
            (pid, *others), names = parts
            end = end_program(pid)
            statuses = [os.waitpid(other, 0)[1] for other in others]
            opened = {name: open_made(work_dir, name) for name in names[:FETCHED]}
            fetched = {name: descriptor for name, descriptor in opened.items() if descriptor >= 0}
            for folder in {role.folder for role in roles.values()} - {""}:
                empty(folder)
            send_process(control, ["ended", end, statuses, list(fetched)], list(fetched.values()))


def many_files() -> int:
    """Raise this process's limit on descriptors to its hard limit, and return that. The kernel
    holds the descriptors that a user has under way to that number too.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def end_program(pid: int) -> ProcessEnd:
    """Wait for a process that is killed, and end what it has started, which is in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # refused to who starts nothing
        os.killpg(pid, signal.SIGKILL)
    end = kernel.wait(pid)
    orphans = kernel.wait_for_all(-pid)
    return end._replace(cpu_seconds=sum(each.cpu_seconds for each in (end, *orphans)))


def open_made(work_dir: str, name: str) -> int:
    """A descriptor of a regular file that the program made, without links; -1 where there is
    none.
    """
    path = os.path.normpath(f"{work_dir}/{name}")
    if not work_dir or os.path.realpath(path) != path or not path.startswith(f"{work_dir}/"):
        return -1
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return -1


def patient_fork() -> int:
    """Fork, with retries where the machine has no room for a process. Raises OSError."""
    for pause in PAUSES:
        try:
            return kernel.fork()
        except OSError:
            time.sleep(pause)
    return kernel.fork()


def fork_processes(
    control: socket.socket, kind: str, role: Role, pipes: Sequence[tuple[int, ...]]
) -> None:
    """Fork into a role once for each of the pipes, into which the process prints; or for (), where
    nobody reads that. Send the descriptors to the supervisor, in one message: each wakes it.

    All forks come first: after each, this process copies every page that it touches.
    """
    prepared, descriptors = [], list[int]()
    for pipe in pipes:
        inside, outside = socket.socketpair()
        # a null device for each: flags that are set on a shared one would outlive a process
        null = os.open(os.devnull, os.O_RDWR)
        streams = [null, *2 * (pipe[1:] or (null,)), inside.fileno()]
        moves = [(os.dup2, (stream, at, at < ROLE_FD)) for at, stream in enumerate(streams)]
        prepared.append(([*moves, *role.walls], null, pipe, inside, outside))
    pids, work = [], role.work
    if role.shown:
        kernel.reveal()
    for steps, *_ in prepared:
        pid = patient_fork()
        if pid == 0:
            become(steps, work)
        pids.append(pid)
    if role.shown:
        kernel.hide()
    for pid, (_, null, pipe, inside, outside) in zip(pids, prepared, strict=True):
        for descriptor in (null, *pipe[1:]):
            os.close(descriptor)
        inside.close()
        descriptors += [outside.detach(), *pipe[:1], os.pidfd_open(pid)]
    send_process(control, [kind, *pids], descriptors)


def send_process(control: socket.socket, message: list[object], descriptors: list[int]) -> None:
    """Send a message with descriptors, and close them here."""
    socket.send_fds(control, [json.dumps(message).encode()], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
