"""Namespaces: a family gets a root folder, processes, a network, messages and a host name that are
its own.

Entered once by a zygote; leaves inherit. As an ordinary user all of it hangs on a user namespace.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import TYPE_CHECKING

from assay.sandbox.kernel import checked, close_from, die_with_parent, hide, libc, syscall

if TYPE_CHECKING:
    from assay.sandbox.access import AccessRules

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
OF_ITS_OWN = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 0x1000, 0x4000, 0x40000, 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, AT_RECURSIVE = 1, 2, 4, 8, 0x8000
MOUNT_SETATTR, AT_FDCWD = 442, -100
ROOT = "/proc"
"""Where the new root is put together: a folder that is always there, and hides nothing that is to
be seen."""
HOST_NAME = "sandbox"
OUTSIDE = 0
"""The pid of a parent that is in no namespace of ours."""


def enter(reach: AccessRules) -> None:
    """Go on as process 1 of namespaces of its own, in a root that holds nothing but what `reach`
    allows.

    The process that called waits outside and ends with this one's status. Raises OSError.
    """
    unshare()
    child = os.fork()
    if child:
        die_with_parent(os.getppid())
        hide()
        close_from(0)  # whoever talks to the child must see it hang up
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    die_with_parent(OUTSIDE)
    socket.sethostname(HOST_NAME)
    change_root(reach)


def unshare() -> None:
    """Leave the common namespaces, by privilege or else as the root of a user namespace. Raises
    OSError.
    """
    try:
        checked(libc.unshare(OF_ITS_OWN), "unshare")
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        checked(libc.unshare(OF_ITS_OWN | NEWUSER), "unshare with a user namespace")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def change_root(reach: AccessRules) -> None:
    """Make a root of read-only views of what is allowed, move there, and let go of the old one.
    Raises OSError.
    """
    os.umask(0o022)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for path in reach.shown:
        show(path)
    for path in reach.covered:
        if os.path.isdir(ROOT + path):
            mount("tmpfs", ROOT + path, "tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for path in reach.packages:
        show(path)
    os.chdir(ROOT)
    checked(libc.pivot_root(b".", b"."), "pivot_root")
    checked(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")
    seal("/", ATTR_RDONLY | ATTR_NOSUID, AT_RECURSIVE)


def show(path: str) -> None:
    """Have `path` in the new root as well, read-only; nothing where it is absent, or there
    already.
    """
    inside = ROOT + path
    if not os.path.exists(path) or os.path.lexists(inside):
        return
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if os.path.islink(path) and os.path.exists(ROOT + os.path.realpath(path)):
        os.symlink(os.path.realpath(path), inside)
        return
    device = path.startswith("/dev/")
    if os.path.isdir(path):
        os.mkdir(inside)
    else:
        os.close(os.open(inside, os.O_CREAT | os.O_WRONLY))
    mount(path, inside, None, MS_BIND | MS_REC)
    seal(inside, ATTR_NOSUID | (ATTR_NOEXEC if device else ATTR_NODEV), AT_RECURSIVE)


def mount(source: str, target: str, kind: str | None, flags: int, options: bytes = b"") -> None:
    """Mount as the system call does. Raises OSError."""
    done = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, flags, options
    )
    checked(done, f"mount {source} at {target}")


def seal(path: str, attributes: int, depth: int = 0) -> None:
    """Add attributes to the mount at `path`, and to those below with AT_RECURSIVE. Raises
    OSError.
    """
    wanted = ctypes.c_char_p(struct.pack("=QQQQ", attributes, 0, 0, 0))
    syscall("mount_setattr", MOUNT_SETATTR, AT_FDCWD, path.encode(), depth, wanted, 32)
