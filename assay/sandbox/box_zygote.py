"""Forks boxes. Each has namespaces and a root folder of its own: the tree as an overlay whose
changes stay in memory, a few more writable folders, and what its rules show, read-only.

Where there are no namespaces, a box is a copy of the tree in memory, to which landlock confines it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
from pathlib import Path

from assay.sandbox import cgroups, kernel, namespaces
from assay.sandbox.box_init import (
    DIES_LATE,
    TOGETHER_MB,
    USER,
    BoxSettings,
    BoxSpec,
    Init,
    OomScore,
)
from assay.sandbox.box_watch import LARGE_SOCKET_MB, SOCKET_MB
from assay.sandbox.kernel import MIB
from assay.sandbox.namespaces import MS_BIND, ROOT, AccessRules, mount, seal
from assay.sandbox.seccomp import CLONE, column
from assay.sandbox.sockets import FramedSocket, message
from assay.sandbox.work_dir import make_work_dir, remove_leftovers, remove_work_dir
from assay.sandbox.zygote import many_files

SETTINGS_BYTES, REQUEST_MB = MIB, 1024
OWNER = 1001
"""What the owner of a tree is called inside, where that is neither root nor we."""
DAC_OVERRIDE, FOWNER = 1, 3
SECUREBITS, NO_SETUID_FIXUP = 28, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
STATE, TREE = "/.state", "/.tree"
WRITABLE = {"/tmp": 0o1777, "/dev/shm": 0o1777}
DEVICES = ("zero", "full", "random", "tty")
OWN = ("/proc", "/sys", "/dev", "/tmp", STATE, TREE)
"""What a box has instead of that of its image."""
ETC = {
    "passwd": f"root:x:0:0::/:/bin/sh\nuser:x:{USER}:{USER}::/tmp:/bin/sh\n",
    "group": f"root:x:0:\nuser:x:{USER}:\n",
    "hosts": f"127.0.0.1 localhost {namespaces.HOST_NAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


NUMBERS = itertools.count()
Boxes = dict[int, tuple[int, contextlib.ExitStack, socket.socket]]
"""Open boxes by the pidfds of their first processes: its pid, what leaves nothing of the box, and
its end of the socket, which is open until then."""


def open_box(data: bytes, stream: socket.socket, boxes: Boxes) -> None:
    """Fork a box, and add it. Raises OSError where the machine cannot. `data`: BoxSettings."""
    required, rules, spec = json.loads(data)
    settings = BoxSettings(required, AccessRules(*rules), BoxSpec(*spec))
    namespaced, user = "namespaces" in required, settings.rules.user
    group, folder = cgroups.Group(()), ""
    with contextlib.ExitStack() as ends:
        if "group" in required:
            memory = settings.spec.memory_mb + settings.spec.size_mb + TOGETHER_MB
            group = cgroups.make(f"box{next(NUMBERS)}", memory * MIB, settings.spec.processes)
            ends.callback(group.remove, cgroups.ENDED_SECONDS)
        if not namespaced:
            kernel.hide()
            folder = make_work_dir(user)
            ends.callback(remove_work_dir, folder)
            ends.callback(end_orphans, boxes)
        (waits, goes), us = os.pipe(), os.getpid()
        pid = clone(namespaces.NAMESPACES | namespaces.NEWUSER) if namespaced else kernel.fork()
        if pid == 0:
            os.close(goes)
            if folder:
                signal.signal(signal.SIGTERM, end_commands)
                kernel.die_with_parent(us, signal.SIGTERM)
            start(settings, stream, waits, folder)
        ends.callback(os.waitpid, pid, 0)
        ends.callback(os.kill, pid, signal.SIGKILL)
        os.close(waits)
        with open(goes, "wb", buffering=0) as go:
            if namespaced:
                map_users(pid, os.stat(settings.spec.tree), user)
            group.add(pid)
            go.write(b".")
        pidfd = os.pidfd_open(pid)
        ends.callback(os.close, pidfd)
        boxes[pidfd] = pid, ends.pop_all(), stream


def end_commands(*_: object) -> None:
    """In a box without namespaces, whose zygote has died: end what runs, then itself."""
    for pid in kernel.children():
        for kill in (os.kill, os.killpg):  # it may have no group of its own yet
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
    os._exit(1)


def end_orphans(boxes: Boxes) -> None:
    """End what a box without namespaces has left running, where its init was killed."""
    while orphans := kernel.children() - {pid for pid, *_ in boxes.values()}:
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def clone(flags: int) -> int:
    """Fork into new namespaces, of which the child is process 1. Raises OSError."""
    _, at = column()
    return kernel.raw_fork(CLONE[at], flags | signal.SIGCHLD)


def map_users(pid: int, tree: os.stat_result, user: int | None) -> None:
    """Give the users of a namespace their names: ours is the one of all commands, or where we are
    root, `user` is, and root and the tree's owner are others. Raises OSError.
    """
    for what, owner in (("uid", tree.st_uid), ("gid", tree.st_gid)):
        ours = os.getuid() if what == "uid" else os.getgid()
        lines = [(USER, ours)] if user is None else [(0, 0), (USER, user)]
        if user is not None and owner not in (0, user):
            lines.append((OWNER, owner))
        if user is None and what == "gid":
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        text = "".join(f"{inside} {out} 1\n" for inside, out in lines)
        Path(f"/proc/{pid}/{what}_map").write_text(text)


def start(settings: BoxSettings, stream: socket.socket, waits: int, folder: str) -> None:
    """In the child: make the box, and serve it. Does not return."""
    try:
        if os.read(waits, 1):
            sock = FramedSocket(stream, REQUEST_MB * MIB)
            try:
                init = make_box(settings, sock, folder)
            except OSError as error:
                sock.send(message("failed", str(error)))
                os._exit(1)
            init.serve()
    finally:
        os._exit(0)


def make_box(settings: BoxSettings, sock: FramedSocket, folder: str) -> Init:
    """Make this process the init of a box, and say what it is and where. Raises OSError."""
    descriptor = os.dup2(sock.stream.fileno(), 3)
    sock.stream = socket.socket(fileno=descriptor)
    os.closerange(4, kernel.MOST_FILES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a command may be of the same user
    score = OomScore()
    if folder:
        kernel.prctl(kernel.CHILD_SUBREAPER, 1)
        work, temporary = f"{folder}/tree", f"{folder}/tmp"
        copy_tree(str(settings.spec.tree), work)
        os.mkdir(temporary)
        if (user := settings.rules.user) is not None:
            give(folder, user)
        init = Init(settings, sock, score, (), folder)
        form, tree = "folder", str(settings.spec.tree)
    else:
        work, temporary, tree = settings.spec.folder, "/tmp", TREE
        tcp_mb = (
            SOCKET_MB if namespaces.bound_tcp() else LARGE_SOCKET_MB
        )  # before /proc is another one
        form = make_root(settings)
        kernel.prctl(SECUREBITS, NO_SETUID_FIXUP)
        same = settings.rules.user is None
        init = Init(settings, sock, score, () if same else (DAC_OVERRIDE, FOWNER), "", tcp_mb)
    kernel.hide()
    sock.send(message("ready", form, work, temporary, tree))
    return init


def make_root(settings: BoxSettings) -> str:
    """Move to a root of its own, with loopback as the only network. The form of the tree. Raises
    OSError.
    """
    kernel.die_with_parent(namespaces.OUTSIDE)
    socket.sethostname(namespaces.HOST_NAME)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as network:
        fcntl.ioctl(network, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    usual = settings.rules._replace(packages=())
    namespaces.fill_root(usual, f"size={settings.spec.size_mb}m,nr_inodes={settings.spec.files}")
    if settings.spec.image:
        namespaces.show_image(str(settings.spec.image), (*OWN, *settings.spec.writable))
    for name in DEVICES:
        namespaces.show(f"/dev/{name}")
    os.makedirs(f"{ROOT}/dev/pts", exist_ok=True)
    with contextlib.suppress(OSError):  # a container may refuse it; only terminals need it
        options = b"newinstance,ptmxmode=0666,mode=0620"
        mount(
            "devpts", f"{ROOT}/dev/pts", "devpts", namespaces.NOEXEC & ~namespaces.MS_NODEV, options
        )
        os.symlink("pts/ptmx", f"{ROOT}/dev/ptmx")
    os.symlink("/proc/self/fd", f"{ROOT}/dev/fd")
    for path, mode in WRITABLE.items():
        own_folder(path, mode, ROOT)
    for path in settings.rules.packages:  # which may lie below a writable folder
        namespaces.show(path)
    for path in settings.spec.covered:
        namespaces.cover(path)
    namespaces.bind(str(settings.spec.tree), ROOT + TREE)
    sys.meta_path.clear()  # modules would come from an image
    namespaces.pivot()  # links of an image lead nowhere else now
    mount_etc()
    form = mount_tree(settings.spec.folder)
    for path in settings.spec.writable:
        own_folder(path, 0o777)
    seal("/", namespaces.ATTR_RDONLY | namespaces.ATTR_NOSUID, namespaces.AT_RECURSIVE)
    for path in (*WRITABLE, *settings.spec.writable, settings.spec.folder):
        seal(path, 0, cleared=namespaces.ATTR_RDONLY)
    return form


def mount_etc() -> None:
    """Name the users and hosts that there are; where an image has them, instead of its own."""
    os.makedirs("/etc", exist_ok=True)
    for name, text in ETC.items():
        target, source = f"/etc/{name}", f"{STATE}/{name}"
        if os.path.exists(target):
            Path(source).write_text(text)
            mount(source, target, None, MS_BIND)
        else:
            with contextlib.suppress(OSError):  # an image that lacks it cannot be changed
                Path(target).write_text(text)


def own_folder(path: str, mode: int, root: str = "") -> None:
    """A folder that commands may write to, of the one file system that the box has in memory. root:
    where its root is before it is the root.
    """
    state = f"{root}{STATE}{path}"
    for folder in (state, root + path):
        os.makedirs(folder, exist_ok=True)
    os.chmod(state, mode)
    mount(state, root + path, None, MS_BIND)
    seal(root + path, namespaces.ATTR_NOSUID | namespaces.ATTR_NODEV)


def mount_tree(inside: str) -> str:
    """Mount the tree as an overlay, so that changes go elsewhere; or a copy, where that is refused.
    Which of them it is.
    """
    for folder in (inside, f"{STATE}/upper", f"{STATE}/work"):
        os.makedirs(folder, exist_ok=True)
    flags = namespaces.MS_NOSUID | namespaces.MS_NODEV
    options = f"lowerdir={TREE},upperdir={STATE}/upper,workdir={STATE}/work,userxattr"
    try:
        if os.stat(TREE).st_uid not in (0, USER, OWNER):
            raise PermissionError("whose owner is nobody here, so that no command could change it")
        mount("overlay", inside, "overlay", flags, options.encode())
    except OSError:
        own_folder(inside, 0o777)
        copy_tree(TREE, inside)
        return "copy"
    return "overlay"


def copy_tree(tree: str, copy: str) -> None:
    """Copy the tree with its links and times. Raises OSError."""
    try:
        shutil.copytree(tree, copy, symlinks=True, dirs_exist_ok=True)
    except shutil.Error as error:
        raise OSError(f"{tree} cannot be copied: {error.args[0][:1]}") from None


def give(folder: str, user: int) -> None:
    """Make a user the owner of all that a folder holds. Raises OSError."""
    for inside, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(f"{inside}/{name}", user, user, follow_symlinks=False)


def receive(control: socket.socket, boxes: Boxes, failure: str) -> bool:
    """Open the box that the trainer asks for, unless a `failure` at the start keeps all from being
    opened. False where it has hung up.
    """
    data, descriptors, _, _ = socket.recv_fds(control, SETTINGS_BYTES, 1)
    for descriptor in descriptors:  # none where there was no room: who asked sees it hang up
        stream = socket.socket(fileno=descriptor)
        try:
            if failure:
                raise OSError(failure)
            open_box(data, stream, boxes)
        except OSError as error:
            with stream, contextlib.suppress(ConnectionError):  # who asked may have gone
                FramedSocket(stream, 0).send(message("failed", str(error)))
    return bool(data)


def main() -> None:
    """Serve the trainer on the inherited descriptor; when it ends, so does everything here."""
    failure = ""
    try:
        kernel.die_first(DIES_LATE)
    except OSError as error:
        failure = str(error)
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    many_files()
    cgroups.remove_leftovers()
    remove_leftovers()
    gc.freeze()  # forks then copy fewer pages
    gc.disable()
    control, boxes, serves = socket.socket(fileno=int(sys.argv[1])), Boxes(), True
    try:
        while serves or boxes:
            poll = select.poll()
            for descriptor in (*boxes, *[control.fileno()] * serves):
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor in boxes:
                    _, ends, stream = boxes.pop(descriptor)
                    with stream:
                        ends.close()
                elif not (serves := receive(control, boxes, failure)):
                    kill_all(boxes)
    finally:
        kill_all(boxes)


def kill_all(boxes: Boxes) -> None:
    """End the first process of every open box, and so all others."""
    for pid, *_ in boxes.values():
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
