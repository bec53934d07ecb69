"""The zygote that starts other programs: compilers, what they made, and interpreters such as node.

A fork receives a command and its files, writes them into the work folder, gives up what the command
does not need, and becomes the program. The work folder is the family's only writable folder. One
program uses it at a time, and all that it left is removed before the next one.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay.sandbox import kernel
from assay.sandbox.ending import NO_PROGRAM, NO_START
from assay.sandbox.program import RESERVE_MB, RUNTIME_MB
from assay.sandbox.seccomp import Filter, process_filter
from assay.sandbox.sockets import FramedSocket, message, read_message, rehearse_receiving
from assay.sandbox.work_dir import is_overfull
from assay.sandbox.zygote import serve

COMMAND_MB = 512
OF_MACHINE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Errors that say nothing of an executable that the program's own compiler made."""


def prepare(work_dir: str, stream: socket.socket) -> Callable[[], None]:
    """The work of a fork: to become the program that it is sent."""
    sock = FramedSocket(stream, COMMAND_MB * kernel.MIB)
    filters = [Filter(process_filter(starts)) for starts in (False, True)]
    return partial(become, work_dir, sock, filters)


def become(work_dir: str, sock: FramedSocket, filters: list[Filter]) -> None:
    """Receive a command and become it; or say why it cannot be started."""
    frame, (stdin, stdout, *executable) = sock.receive_with_descriptors()
    argv, files, starts, extra_mb, environment, deep = read_message(frame)
    try:
        os.chdir(work_dir)
        for name, data in files:
            write(name, data)
        if is_overfull(work_dir):  # where it is a file system of its own, that has said so
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for descriptor, standard in ((stdin, 0), (stdout, 1)):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        most, _ = resource.getrlimit(resource.RLIMIT_DATA)
        memory = most - (RUNTIME_MB + RESERVE_MB - extra_mb) * kernel.MIB
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        stack = resource.getrlimit(resource.RLIMIT_STACK)[deep]
        resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
        filters[starts].load()
        home = dict.fromkeys(("HOME", "TMPDIR"), work_dir)
        os.execve(executable[0] if executable else argv[0], argv, {**environment, **home})
    except OSError as error:
        of_program = not argv[0].startswith("/") and error.errno not in OF_MACHINE
        mark = NO_PROGRAM if of_program else NO_START
        sock.send(mark + f"{argv[0]} cannot be started: {error.strerror}".encode())


def write(name: str, data: bytes) -> None:
    """Write a file of the work folder, which may be executed. Raises OSError."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
        file.write(data)


if __name__ == "__main__":
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; programs do not
        signal.signal(number, signal.SIG_DFL)
    rehearse_receiving(message([], [], False, 0, {}, False), read_message)
    serve(int(sys.argv[1]), prepare)
