"""Linux calls that the standard library lacks, through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import math
import os
import re
import resource
import signal
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

USED = ("RssAnon", "VmSwap", "VmPTE", "HugetlbPages")
"""Fields of a process's status, in KiB, of memory that ends with it."""
THREAD_KB = 16
"""What the kernel keeps for a thread, whatever its stack."""
MIB = 1024 * 1024
PDEATHSIG, DUMPABLE, NO_NEW_PRIVS, SECCOMP, CHILD_SUBREAPER = 1, 4, 38, 22, 36
CAPBSET_READ, CAPBSET_DROP, CAP_AMBIENT, RAISE, CLEAR_ALL = 23, 24, 47, 2, 4
CAPABILITY_VERSION_3 = 0x20080522
SIGKILL, SIGSTOP = 9, 19
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
PAGE = 4096
OOM_SCORE, DIES_FIRST = "/proc/self/oom_score_adj", 1000
REAP_SECONDS = 0.005
MOST_FILES = 65_536
"""More descriptors than a process has that closes all of them."""
MEMORY = re.compile(rf"^({'|'.join(USED)}|RssShmem|Threads|PPid):\s+(\d+)", re.MULTILINE)
NAME = re.compile(r"assay-(\d+)-(\d+)-\w+")
"""What is named by `own_name`: pid and start time of the process that made it, and its purpose."""

libc = ctypes.CDLL(None, use_errno=True)
_with_gil = ctypes.PyDLL(None, use_errno=True)


class ProcessEnd(NamedTuple):
    """What a process that has ended used."""

    pid: int
    status: int
    """As of wait(2)."""
    cpu_seconds: float
    memory_mb: float
    """Peak resident memory in MiB."""


def checked(result: int, what: str) -> int:
    """`result` of a call. Raises OSError with errno and the call's name where it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """Make one raw system call. Raises OSError."""
    return checked(libc.syscall(number, *arguments), what)


def prctl(option: int, a: int = 0, b: object = 0) -> int:
    """Set one option of the process. Raises OSError."""
    return checked(libc.prctl(option, ctypes.c_ulong(a), b, 0, 0), "prctl")


def die_with_parent(parent: int, sign: int = SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that forked it ends.

    `parent` is its pid; this process exits where that has ended already.
    """
    prctl(PDEATHSIG, sign)
    if os.getppid() != parent:
        os._exit(1)


def die_first(score: int = DIES_FIRST) -> None:
    """Have the out-of-memory killer take this process and its children before any other, or before
    those of a lower `score`.
    """
    with open(OOM_SCORE, "r+") as file:
        score = max(score, int(file.read()))  # an ordinary user may not lower what root has set
        file.seek(0)
        file.write(str(score))


def weighs_sessions() -> bool:
    """Whether Linux shares the cores among sessions first (autogroup), and only then among the
    processes of each by their niceness.
    """
    return read_text("/proc/sys/kernel/sched_autogroup_enabled").strip() == "1"


def give_way(pid: int, steps: int) -> bool:
    """Let other processes go before this one where there are too few cores: it gets so many steps
    nicer than we are. Whether that is done; else it may be later. Linux may weigh whole sessions
    against each other first (autogroup), and by their niceness only the processes of one: so both
    are set.
    """
    niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + steps, 19)
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)
    try:
        with open(f"/proc/{pid}/autogroup", "w") as file:
            file.write(str(niceness))
    except OSError as error:  # all users but root together may write one each 0.1 s
        return error.errno != errno.EAGAIN
    return True


def set_limit(name: str, value: int) -> None:
    """Set a limit of this process, such as `FSIZE`, for good. Raises OSError that names the limit
    where its hard limit is lower.
    """
    which = getattr(resource, f"RLIMIT_{name}")
    try:
        resource.setrlimit(which, (value, value))
    except (OSError, ValueError):
        most = resource.getrlimit(which)[1]
        raise OSError(
            f"the hard limit RLIMIT_{name} is {most} here, but the judge needs {value}"
        ) from None


def read_text(file: str | os.PathLike[str]) -> str:
    """The text of a file in /proc or /sys; empty where it is absent."""
    try:
        descriptor = os.open(file, os.O_RDONLY)  # takes a third of the time of open()
        try:
            answer = b"".join(iter(lambda: os.read(descriptor, PAGE), b""))
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return answer.decode(errors="replace")  # a process may have any bytes as its name


def memory_file(data: bytes) -> int:
    """A descriptor from which to read `data`, and to which nobody can write."""
    file = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(file, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file


def hide() -> None:
    """Make this process undumpable: another process of the user cannot trace it or read its
    memory.
    """
    prctl(DUMPABLE, 0)


def reveal() -> None:
    """Let processes of the user outside look at this one again: at the files that it holds."""
    prctl(DUMPABLE, 1)


def forgo_privileges() -> None:
    """Set no-new-privileges: exec can add none."""
    prctl(NO_NEW_PRIVS, 1)


def drop_capabilities(needed: Collection[int] = ()) -> None:
    """Empty the bounding, ambient, permitted, effective and inheritable sets, but for what is
    `needed`, which programs that this process starts have too.
    """
    for capability in range(64):
        if capability not in needed and libc.prctl(CAPBSET_READ, capability, 0, 0, 0) == 1:
            # EPERM without CAP_SETPCAP: then there is nothing to drop
            libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    mask = sum(1 << capability for capability in needed)
    sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
    checked(libc.capset(header, sets), "capset")
    for capability in needed:
        checked(libc.prctl(CAP_AMBIENT, RAISE, capability, 0, 0), "prctl")


def fork() -> int:
    """Fork without Python's hooks. Only for a process with one thread.

    The hooks of os.fork touch two hundred pages where `threading` is loaded, and reseed `random`.
    """
    return checked(_with_gil.fork(), "fork")


def raw_fork(number: int, flags: int) -> int:
    """As `fork`, by the system call clone of this number, into what its flags say. Raises
    OSError.
    """
    return checked(_with_gil.syscall(number, ctypes.c_ulong(flags), 0, 0, 0, 0), "clone")


def reap_ended() -> bool:
    """Reap the children that have ended, inherited ones too. False where none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def wait(which: int, flags: int = 0) -> ProcessEnd:
    """Wait for the end of a child that waitpid(2) names so. Raises ChildProcessError."""
    pid, status, usage = os.wait4(which, flags)
    return ProcessEnd(pid, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def wait_for_all(which: int) -> list[ProcessEnd]:
    """Wait until no child is left that waitpid(2) names so."""
    ends = list[ProcessEnd]()
    with contextlib.suppress(ChildProcessError):
        while True:
            ends.append(wait(which))
    return ends


def reap_orphans(awaited: Collection[int]) -> list[ProcessEnd]:
    """Reap the children that have ended, but for those `awaited`, whose pids nobody else gets until
    then.
    """
    ends = (wait(pid, os.WNOHANG) for pid in children().difference(awaited))
    return [end for end in ends if end.pid]


def children() -> set[int]:
    """The pids of this process's children, inherited ones included."""
    return set(map(int, read_text(f"/proc/self/task/{os.getpid()}/children").split()))


def end_children(patience: float = 0.0, most: float = math.inf) -> None:
    """Wait until no child is left, inherited ones included, which are killed after `patience`
    seconds; after `most` seconds those stay that may not be killed. Raises PermissionError for such
    a one where the wait has no end.
    """
    start, refused = time.monotonic(), () if most == math.inf else (PermissionError,)
    while reap_ended() and (waited := time.monotonic() - start) < most:
        if waited >= patience:
            for pid in children():
                with contextlib.suppress(*refused):
                    os.kill(pid, SIGKILL)
        time.sleep(REAP_SECONDS)


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds of all threads of a process or zombie. Raises OSError where there is none."""
    return time.clock_gettime((~pid << 3) | 2)


def used_mb_of(pid: int) -> float:
    """MiB of memory that is no file's, swapped or not, of a process with its page tables and
    threads; 0 of a zombie.
    """
    return private_kb(memory_of(pid)) / 1024


def private_kb(memory: Mapping[str, int]) -> int:
    """KiB that nobody else has, from the fields of a process's status."""
    threads = THREAD_KB * max(0, memory.get("Threads", 0) - 1)
    return threads + sum(memory.get(name, 0) for name in USED)


def memory_of(pid: int) -> dict[str, int]:
    """What a process's status says of its memory, in KiB, its threads and its parent, by the names
    there. Of a zombie no memory is there.
    """
    status = read_text(f"/proc/{pid}/status")
    if "RssAnon:" not in status:  # its main thread has ended, but others may run on
        with contextlib.suppress(OSError):
            threads = (read_text(f"/proc/{pid}/task/{thread}/status")
                       for thread in os.listdir(f"/proc/{pid}/task"))  # fmt: skip
            status = next((each for each in threads if "RssAnon:" in each), "")
    return {name: int(value) for name, value in MEMORY.findall(status)}


def signal_name(number: int) -> str:
    """What a signal is called. Those of real time, which any program may send, have no name."""
    names = {sign.value: sign.name for sign in signal.Signals}
    return names.get(number, f"signal {number}")


def own_name(purpose: str) -> str:
    """A name of something of this process, by which the next one finds it if it is left."""
    return f"assay-{os.getpid()}-{start_time(os.getpid())}-{purpose}"


def is_leftover(name: str) -> bool:
    """Whether it is the name of something of a process that has ended."""
    owner = NAME.fullmatch(name)
    return owner is not None and start_time(int(owner[1])) != int(owner[2])


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where there is none. Pids are reused."""
    _, _, fields = read_text(f"/proc/{pid}/stat").rpartition(")")
    return int(fields.split()[19]) if fields else 0
