"""System call filters: one for a family, and one more for each process that it forks ("threads yes,
processes no").

Forks inherit the family's filter, so it is loaded once. Refused calls return EPERM. Calls newer
than the table return ENOSYS, so that a newer kernel allows nothing more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Collection

from assay.sandbox import landlock
from assay.sandbox.kernel import DUMPABLE, SECCOMP, SIGKILL, SIGSTOP, checked, libc
from assay.sandbox.namespaces import FIRST

NEWEST_KNOWN = 462
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# name -> number on x86-64 and on aarch64; -1 where the architecture has no such call
NUMBERS: dict[str, tuple[int, int]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kill": (62, 129),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "timer_create": (222, 107),
    # other programs, namespaces, mounts
    "execve": (59, 221), "execveat": (322, 281), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442),
    "personality": (135, 92),
    # wide kernel surfaces
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "iopl": (172, -1), "ioperm": (173, -1),
    "modify_ldt": (154, -1), "lookup_dcookie": (212, 18), "syslog": (103, 116),
    # memory and messages that outlive a process or escape its limits
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_notify": (244, 184),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "flock": (73, 32),
    # files' metadata, which landlock does not guard
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "truncate": (76, 45),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "inotify_init": (253, -1), "inotify_init1": (294, 26), "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # the machine
    "clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "acct": (163, 89), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip
PROCESS_NUMBERS = {
    "fork": (57, -1), "vfork": (58, -1), "setsid": (112, 157), "setpgid": (109, 154),
    "seccomp": (317, 277), "pidfd_open": (434, 434),
    # by which descriptors, and all that their files hold, leave the process
    "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "chmod": (90, -1), "fchmodat": (268, 53), "fchmodat2": (452, 452),
}  # fmt: skip
TO_START = ("execve", "execveat", "kill")
NEVER_STARTED = ("kill", *(PROCESS_NUMBERS.keys() - {"fork", "vfork"}))
OF_REPOSITORIES = {
    "execve", "execveat", "kill", "tkill", "pidfd_send_signal", "rt_sigqueueinfo", "setpriority",
    "timer_create", "memfd_create", "shmget", "shmat", "shmctl", "semget", "semop", "semctl",
    "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_notify",
    "socket", "connect", "bind", "flock", "chmod", "fchmodat", "fchmodat2", "chown",
    "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "removexattr",
    "lremovexattr", "fremovexattr", "utime", "utimes", "futimesat", "truncate",
    "inotify_init", "inotify_init1",
}  # fmt: skip
"""Calls that reach nothing outside the namespaces of a box."""
OF_BOX = (1, 2, 10, 16)
"""Families of sockets in a box: of files, IPv4, IPv6, and netlink, by which it sees its own
network."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
CLONE_NEW = 0x7E020080
"""Every flag of clone that makes a namespace."""
FCHMOD, UTIMENSAT, SPECIAL = (91, 52), (280, 88), 0o7000
"""Without a path, both change an open file, as what copies files does."""
CLONE, CLONE3, PRCTL, TGKILL = (56, 220), (435, 435), (157, 167), (234, 131)
PRLIMIT, MMAP, FCNTL, IOCTL = (302, 261), (9, 222), (72, 25), (16, 29)
SETRLIMIT, RLIMIT_CPU, RLIMIT_STACK = (160, 164), 0, 3
SETSOCKOPT, SOL_SOCKET, BUFFERS = (54, 208), 1, (7, 8)
"""SO_SNDBUF and SO_RCVBUF: without them, what a socket holds has a known bound."""
SOCKETPAIR, STREAM, SOCKET_TYPES = (53, 199), 1, 0xF
"""Datagram pairs could send to any named socket of the host, which landlock does not prevent."""

CLONE_THREAD, PR_SET_NAME, MAP_SHARED_ANONYMOUS = 0x10000, 15, 0x21
MAP_GROWSDOWN = 0x100
"""Counted as stack, which RLIMIT_DATA leaves out."""
LOCKS = (6, 7)
"""Of parts of files; SQLite needs them."""
REFUSED_FCNTL = (*LOCKS, 8, 10, 15, 37, 38, 1024, 1026, 1036, 1038)
"""Locks, owners of signals, leases, files' hints."""
REFUSED_IOCTL = (0x5412, 0x8901, 0x8902, 0x5452)  # TIOCSTI, owners of signals, FIOASYNC

LOAD, EQUAL, GREATER, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
OWN_PID = 0x7E5717E5
"""Placeholder in a program for the pid of the process that loads it."""
NR, ARCH, ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]
REFUSE: Instruction = (RETURN, 0, 0, 0x00050000 | errno.EPERM)
UNKNOWN: Instruction = (RETURN, 0, 0, 0x00050000 | errno.ENOSYS)
NOTHING: Instruction = (RETURN, 0, 0, 0x00050000)
"""The call does nothing and returns 0."""
PASS_ON: Instruction = (RETURN, 0, 0, ALLOW)


def column() -> tuple[int, int]:
    """The architecture's audit number and its column in the tables. Raises OSError for an unknown
    architecture.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call table for {machine}")
    return ARCHITECTURES[machine]


def _argument(index: int, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4 * high)


def _only_for(number: int, body: list[Instruction]) -> list[Instruction]:
    """`body`, which ends in returns, for the call `number` only."""
    return [(EQUAL, 0, len(body), number), *body] if number >= 0 else []


def _refuse(numbers: list[int]) -> list[Instruction]:
    """Each of these calls returns EPERM."""
    return [step for number in numbers for step in ((EQUAL, 0, 1, number), REFUSE)]


def _refuse_calls(names: Collection[str], at: int) -> list[Instruction]:
    """As `_refuse`, for the calls of these names that the architecture of this column has."""
    numbers = {**NUMBERS, **PROCESS_NUMBERS}
    return _refuse([both[at] for name, both in numbers.items() if name in names and both[at] >= 0])


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    return [_argument(argument), *_refuse(list(values)), PASS_ON]


def _refuse_but(argument: int, value: int) -> list[Instruction]:
    return [_argument(argument), (EQUAL, 0, 1, value), PASS_ON, REFUSE]


def _if_set(argument: int, answer: Instruction) -> list[Instruction]:
    """`answer` where a pointer is not null."""
    return [_argument(argument), (EQUAL, 0, 3, 0), _argument(argument, high=True),
            (EQUAL, 0, 1, 0), PASS_ON, answer]  # fmt: skip


def repository_filter(counted: bool = True) -> list[Instruction]:
    """Refuses what a command of a box does not need, which has namespaces of its own: other
    namespaces, mounts, tracing, wide kernel surfaces, the machine's settings and limits of the
    box's first process. counted: whether a control group counts all memory; else it makes no files
    in memory that nobody can see, and to set the buffers of a socket succeeds and does nothing.
    """
    audit, at = column()
    hidden = () if counted else ("memfd_create",)
    buffers = [_argument(1), (EQUAL, 1, 0, SOL_SOCKET), PASS_ON, _argument(2),
               *(step for option in BUFFERS for step in ((EQUAL, 0, 1, option), NOTHING)),
               PASS_ON]  # fmt: skip
    families = [step for family in OF_BOX for step in ((EQUAL, 0, 1, family), PASS_ON)]
    return [
        *_known_calls(audit), *_refuse_calls(NUMBERS.keys() - OF_REPOSITORIES, at),
        *_refuse_calls(("seccomp", *hidden), at), (EQUAL, 0, 1, CLONE3[at]), UNKNOWN,
        *_only_for(CLONE[at], [_argument(0), (ANY_BIT, 0, 1, CLONE_NEW), REFUSE, PASS_ON]),
        *_only_for(PRLIMIT[at], [_argument(0), (EQUAL, 0, 1, FIRST), REFUSE, PASS_ON]),
        *([] if counted else _only_for(SETSOCKOPT[at], buffers)),
        *_only_for(NUMBERS["socket"][at], [_argument(0), *families, REFUSE]),
        *_only_for(IOCTL[at], _refuse_values(1, (TIOCSTI, TIOCLINUX))),
        PASS_ON,
    ]  # fmt: skip


def _known_calls(audit: int) -> list[Instruction]:
    """Kills a process of another architecture; refuses calls newer than the table."""
    return [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL),
            (LOAD, 0, 0, NR), (GREATER, 0, 1, NEWEST_KNOWN), UNKNOWN]  # fmt: skip


def family_filter(
    starts_programs: bool = False, locks: bool = False, modes: bool = False
) -> list[Instruction]:
    """Refuses what neither a zygote nor a process that it forks needs. One that starts programs
    needs exec, and signals to end what they have started; one that shares files, their `locks`.

    To change the `modes` or times of an open file succeeds, so that files can be copied; but it
    does nothing to times, nor to modes where one could open a file that is not its own.
    """
    audit, at = column()
    needed = TO_START if starts_programs else ()
    return [
        *_known_calls(audit), *_refuse_calls(NUMBERS.keys() - set(needed), at),
        *_only_for(PRLIMIT[at], [_argument(0), (EQUAL, 0, 1, 0), PASS_ON, REFUSE]),
        *_only_for(MMAP[at], [_argument(3), (ANY_BIT, 0, 1, MAP_GROWSDOWN), REFUSE,
                              (AND, 0, 0, MAP_SHARED_ANONYMOUS),
                              (EQUAL, 0, 1, MAP_SHARED_ANONYMOUS), REFUSE, PASS_ON]),
        *_only_for(SOCKETPAIR[at], [_argument(1), (AND, 0, 0, SOCKET_TYPES), (EQUAL, 0, 1, STREAM),
        PASS_ON, REFUSE]),
        *_only_for(FCHMOD[at], [_argument(1), (ANY_BIT, 0, 1, SPECIAL), REFUSE,
                                PASS_ON if modes else NOTHING]),
        *_only_for(UTIMENSAT[at], [_argument(1), (EQUAL, 1, 0, 0), REFUSE, NOTHING]),
        *_only_for(FCNTL[at], _refuse_values(1, REFUSED_FCNTL[len(LOCKS) * locks :])),
        *_only_for(IOCTL[at], _refuse_values(1, REFUSED_IOCTL)),
        PASS_ON,
    ]  # fmt: skip


def process_filter(starts_processes: bool = False, hides: bool = False) -> list[Instruction]:
    """Refuses processes but not threads, modes of files by their paths, prctl, signals to others,
    SIGKILL or SIGSTOP to itself, and to set its CPU time limit, by which the kernel would send it
    SIGKILL. To set the limit of its stack succeeds and does nothing: programs ask for more than
    they use.

    One that `starts_processes` may fork and exec. What it starts can leave neither its process
    group, by which all of it is killed, nor its namespaces. Its signals to threads stay inside
    where landlock knows signals, and are refused elsewhere. One that `hides` may become undumpable.
    """
    _, at = column()
    clone = [(ANY_BIT, 0, 1, CLONE_THREAD), PASS_ON, REFUSE]
    refused, others = (*PROCESS_NUMBERS, "kill"), [
        *_only_for(SETRLIMIT[at], [_argument(0), (EQUAL, 0, 1, RLIMIT_CPU), REFUSE,
                                   (EQUAL, 0, 1, RLIMIT_STACK), NOTHING, PASS_ON]),
        *_only_for(PRLIMIT[at], [_argument(1), *_only_for(RLIMIT_CPU, _if_set(2, REFUSE)),
                                 *_only_for(RLIMIT_STACK, _if_set(2, NOTHING)), PASS_ON]),
        *_only_for(TGKILL[at], [_argument(0), (EQUAL, 1, 0, OWN_PID), REFUSE,
                                *_refuse_values(2, (SIGKILL, SIGSTOP))]),
    ]  # fmt: skip
    if starts_processes:
        scoped = landlock.abi() >= landlock.SIGNAL_SCOPE_ABI
        refused, others = NEVER_STARTED, [] if scoped else _only_for(TGKILL[at], [REFUSE])
        clone = [(ANY_BIT, 0, 1, CLONE_NEW), REFUSE, PASS_ON]
    return [
        (LOAD, 0, 0, NR), *_refuse_calls(refused, at), (EQUAL, 0, 1, CLONE3[at]), UNKNOWN,
        *_only_for(CLONE[at], [_argument(0), *clone]),
        *_only_for(PRCTL[at], [_argument(0), (EQUAL, 0, 1, PR_SET_NAME), PASS_ON,
                               *(_only_for(DUMPABLE, _refuse_but(1, 0)) if hides else []),
                               REFUSE]),
        *others, PASS_ON,
    ]  # fmt: skip


class Filter:
    """A filter as the kernel takes it, made once and loaded by many forks."""

    def __init__(self, program: list[Instruction]) -> None:
        code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
        self._code = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("@HP", len(program), ctypes.addressof(self._code))
        self._arguments = SECCOMP, ctypes.c_ulong(2), header, 0, 0
        self._words = memoryview(self._code).cast("B").cast("I")
        self._own_pid = [2 * at + 1 for at, step in enumerate(program) if step[3] == OWN_PID]

    def load(self) -> None:
        """Filter this process and all that it forks. Needs no-new-privileges. Raises OSError."""
        for at in self._own_pid:
            self._words[at] = os.getpid()
        checked(libc.prctl(*self._arguments), "seccomp")
