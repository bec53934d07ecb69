"""Linux calls that the standard library lacks, by ctypes: prctl, capabilities, a bare fork, process
CPU clocks.
"""

from __future__ import annotations

import ctypes
import os
import time

PDEATHSIG, DUMPABLE, NO_NEW_PRIVS, SECCOMP, CAPBSET_READ, CAPBSET_DROP, CAP_AMBIENT = (
    1,
    4,
    38,
    22,
    23,
    24,
    47,
)
CAPABILITY_VERSION_3 = 0x20080522
CLOSE_RANGE = 436
SIGKILL, SIGSTOP = 9, 19
PAGE = 4096

libc = ctypes.CDLL(None, use_errno=True)
_with_gil = ctypes.PyDLL(None)


def checked(result: int, what: str) -> int:
    """`result`, unless it is negative: then OSError with errno and the call's name."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """One raw system call. Raises OSError."""
    return checked(libc.syscall(number, *arguments), what)


def prctl(option: int, a: int = 0, b: object = 0) -> int:
    """One option of the process, by prctl. Raises OSError."""
    return checked(libc.prctl(option, ctypes.c_ulong(a), b, 0, 0), "prctl")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends; `parent` is the pid
    expected.
    """
    prctl(PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def die_first() -> None:
    """Where memory runs out, have the kernel kill this process, and all it will fork, before any
    other.
    """
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def said(file: str | os.PathLike[str]) -> str:
    """What a file of the kernel says; empty where it is absent."""
    try:
        descriptor = os.open(file, os.O_RDONLY)  # a third of the time that open() takes
        try:
            answer = b"".join(iter(lambda: os.read(descriptor, PAGE), b""))
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return answer.decode(errors="replace")  # a process may have any bytes for a name


def hide() -> None:
    """Make this process undumpable: no peer of the same user may trace it or read its memory."""
    prctl(DUMPABLE, 0)


def forgo_privileges() -> None:
    """No new privileges, by exec or otherwise."""
    prctl(NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empty the bounding, ambient, permitted, effective and inheritable sets."""
    for capability in range(64):
        if libc.prctl(CAPBSET_READ, capability, 0, 0, 0) == 1:
            libc.prctl(
                CAPBSET_DROP, capability, 0, 0, 0
            )  # EPERM without CAP_SETPCAP: then there is nothing to gain
    libc.prctl(CAP_AMBIENT, 4, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    checked(libc.capset(header, nothing), "capset")


def fork() -> int:
    """Fork without Python's hooks: for a process of one thread, whose children never return from
    their role.

    The hooks of os.fork touch two hundred pages where `threading` is loaded, and give `random` a
    fresh seed.
    """
    return checked(_with_gil.fork(), "fork")


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    if libc.syscall(CLOSE_RANGE, first, 0xFFFFFFFF, 0) != 0:
        os.closerange(first, 4096)  # kernels before 5.9


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds that a living process (or zombie) has used, over all its threads. Raises OSError
    when it is gone.
    """
    return time.clock_gettime((~pid << 3) | 2)
