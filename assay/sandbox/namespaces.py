"""Namespaces: a family gets its own root folder, processes, network, System V IPC and host name.

A zygote enters once and its children inherit. An ordinary user needs a user namespace for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from assay.sandbox.kernel import MOST_FILES, checked, die_with_parent, hide, libc, syscall

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
NEWPID, NEWNET = 0x20000000, 0x40000000
NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 0x1000, 0x4000, 0x40000, 2
NOEXEC = MS_NOSUID | MS_NODEV | 8
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, AT_RECURSIVE = 1, 2, 4, 8, 0x8000
MOUNT_SETATTR, AT_FDCWD = 442, -100
ROOT = "/proc"
"""Where to assemble the new root: a folder that always exists and holds nothing that is needed."""
HOST_NAME = "sandbox"
WORK_DIR = "/box"
WORK_MB, WORK_FILES = 256, 4096
"""What a work folder may hold where it is a file system of its own."""
FILE_MB = 64
"""The largest file of a work folder that is none."""
TEMPORARY, TEMPORARY_MB = "/tmp", 64
"""Where C's tmpfile opens files, and how much they hold together."""
NULL_FILE = "/dev/null"
TCP_BUFFERS, TCP_BYTES = ("tcp_rmem", "tcp_wmem"), "4096 65536 212992"
"""What bounds the buffers of a socket of TCP: the least, the first and the most."""
FIRST = 1
"""The pid of a namespace's first process: its end ends all of them."""
OUTSIDE = 0
"""The pid of a parent outside our PID namespace."""


class AccessRules(NamedTuple):
    """What a family may read, and the user that it runs as."""

    readable: tuple[str, ...]
    """Files and folders to read, with all that they hold."""
    listable: tuple[str, ...]
    """Folders to list: imports search them."""
    visible: tuple[str, ...]
    """What the root folder of a mount namespace holds."""
    covered: tuple[str, ...]
    """Folders below `visible` that are empty there."""
    packages: tuple[str, ...]
    """What is shown again below a covered folder, or outside of `visible`."""
    library: str
    """The standard library's folder, which the user must be able to reach."""
    user: int | None
    """The user id to change to; None to stay the same user."""
    work_dir: str = ""
    """The only folder to write to; empty for a family that writes no files."""
    starts_programs: bool = False
    """Whether it starts other programs by exec."""
    sets_modes: bool = False
    """Whether it owns no files but those of its work folder, whose modes it may change."""
    temporary: str = ""
    """A folder in memory to open files without names in; empty for none."""


def enter(rules: AccessRules) -> None:
    """Continue as process 1 of new namespaces, in a root that holds only what `rules` allow.

    The calling process waits outside and exits with this one's status. Raises OSError.
    """
    unshare()
    child = os.fork()
    if child:
        die_with_parent(os.getppid())
        hide()
        os.closerange(0, MOST_FILES)  # the child's peers must see it hang up
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    die_with_parent(OUTSIDE)
    socket.sethostname(HOST_NAME)
    change_root(rules)


def unshare() -> None:
    """Leave the host's namespaces, as root or else in a user namespace. Raises OSError."""
    try:
        checked(libc.unshare(NAMESPACES), "unshare")
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        checked(libc.unshare(NAMESPACES | NEWUSER), "unshare with a user namespace")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def bound_tcp() -> bool:
    """Bound the buffers of TCP in this network namespace, which else may take all that the machine
    has for it. Whether that is possible.
    """
    try:
        for name in TCP_BUFFERS:
            with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
                file.write(TCP_BYTES)
    except OSError:
        return False
    return True


def counts_alone(rules: AccessRules, required: Collection[str]) -> bool:
    """Whether RLIMIT_NPROC counts only the family: it has a user of its own, or a user namespace,
    which an ordinary user needs for any other and which Linux counts apart since 5.14.
    """
    newest = tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 14)
    apart = newest and os.getuid() != 0 and "namespaces" in required
    return apart or os.getuid() == rules.user


def change_root(rules: AccessRules) -> None:
    """Move to a new root of read-only bind mounts, and unmount the old one. Raises OSError."""
    fill_root(rules, "size=1m")
    writable = {rules.work_dir: WORK_MB, rules.temporary: TEMPORARY_MB}
    writable = {path: mb for path, mb in writable.items() if not os.path.exists(ROOT + path)}
    for path in writable:  # an interpreter may lie below /tmp, which programs then cannot write to
        os.mkdir(ROOT + path)
    pivot()
    seal("/", ATTR_RDONLY | ATTR_NOSUID, AT_RECURSIVE)
    owner = os.getuid() if rules.user is None else rules.user
    for path, mb in writable.items():
        options = f"mode=0700,uid={owner},size={mb}m,nr_inodes={WORK_FILES}"
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options.encode())


def fill_root(rules: AccessRules, options: str) -> None:
    """Make a new root at ROOT that holds what `rules` show. Raises OSError."""
    os.umask(0o022)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0755,{options}".encode())
    for path in rules.visible:
        show(path)
    for path in rules.covered:
        if os.path.isdir(ROOT + path):
            mount("tmpfs", ROOT + path, "tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for path in rules.packages:
        show(path)
    if rules.starts_programs:
        os.mkdir(ROOT + "/proc")
        with contextlib.suppress(OSError):  # a container may refuse it; rustc and java need it
            mount("proc", ROOT + "/proc", "proc", NOEXEC, b"subset=pid,hidepid=ptraceable")
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.symlink(f"/proc/self/fd/{number}", f"{ROOT}/dev/{name}")


def pivot() -> None:
    """Make ROOT the root, and unmount the old one. Raises OSError."""
    os.chdir(ROOT)
    checked(libc.pivot_root(b".", b"."), "pivot_root")
    checked(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def show(path: str) -> None:
    """Mount `path` in the new root, unless it is absent or there already."""
    inside = ROOT + path
    if not os.path.exists(path) or os.path.lexists(inside):
        return
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if os.path.islink(path) and os.path.exists(ROOT + os.path.realpath(path)):
        os.symlink(os.path.realpath(path), inside)
        return
    bind(path, inside)


def cover(path: str) -> None:
    """Make a file or folder of the new root empty, if it is there."""
    inside = ROOT + path
    if os.path.realpath(inside) != os.path.realpath(ROOT) + path:
        return  # through a link, which leads out of the new root until that is the root
    if os.path.isdir(inside):
        mount("tmpfs", inside, "tmpfs", MS_NOSUID | MS_NODEV, b"mode=0555,size=4k")
    elif os.path.isfile(inside):
        mount(NULL_FILE, inside, None, MS_BIND)


def show_image(image: str, covered: Collection[str]) -> None:
    """Mount what an image's folder holds in the new root, but for the `covered` paths. Its links
    stay as they are: before `pivot`, nothing may follow one.
    """
    for path in (f"/{name}" for name in os.listdir(image) if f"/{name}" not in covered):
        if os.path.islink(image + path):
            os.symlink(os.readlink(image + path), ROOT + path)
        else:
            bind(image + path, ROOT + path)


def bind(path: str, inside: str) -> None:
    """Mount `path` at the new path `inside`, read-only."""
    device = inside.startswith(f"{ROOT}/dev/")
    if os.path.isdir(path):
        os.mkdir(inside)
    else:
        os.close(os.open(inside, os.O_CREAT | os.O_WRONLY))
    mount(path, inside, None, MS_BIND | MS_REC)
    seal(inside, ATTR_RDONLY | ATTR_NOSUID | (ATTR_NOEXEC if device else ATTR_NODEV), AT_RECURSIVE)


def mount(source: str, target: str, kind: str | None, flags: int, options: bytes = b"") -> None:
    """The system call mount. Raises OSError."""
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, flags, options
    )
    checked(result, f"mount {source} at {target}")


def seal(path: str, attributes: int, depth: int = 0, cleared: int = 0) -> None:
    """Add attributes to the mount at `path`, or clear some; with AT_RECURSIVE also below it. Raises
    OSError.
    """
    attribute_set = ctypes.c_char_p(struct.pack("=QQQQ", attributes, cleared, 0, 0))
    syscall("mount_setattr", MOUNT_SETATTR, AT_FDCWD, path.encode(), depth, attribute_set, 32)
