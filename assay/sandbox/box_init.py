"""The first process of a box: it takes one request after another from its socket, to run a command
or to do something with files.

A child does each, after it has given up what a command does not need, so that nothing that a
command left can lead our own code astray. After a request, all that runs in the box is killed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from assay.sandbox import box_files, kernel, landlock
from assay.sandbox.kernel import MIB, MOST_FILES
from assay.sandbox.namespaces import AccessRules
from assay.sandbox.program import Ended, message, read_message
from assay.sandbox.seccomp import Filter, family_filter, process_filter, repository_filter
from assay.sandbox.sockets import FramedSocket

USER = 1000
"""What the user of all commands is called in a user namespace."""
CHUNK = 65_536
NOT_DONE = 126
"""The status of a request that failed before a command was there."""


class BoxSpec(NamedTuple):
    """What a box is to be."""

    tree: Path
    """The trusted copy of what its work folder holds, which is mounted copy-on-write."""
    roots: tuple[Path, ...] = ()
    """Folders and files with an interpreter, packages or tools, which are there at the same paths,
    read-only. The interpreter of a virtual environment among them is found."""
    environment: Mapping[str, str] = {}
    """Variables of all commands, beside the usual ones."""
    folder: str = "/testbed"
    """The work folder, where the box has a root of its own."""
    image: Path | None = None
    """An absolute path of an unpacked image, whose folder is `/`, read-only, instead of the
    system's; `roots` are not shown then."""
    size_mb: int = 2048
    files: int = 200_000
    """What the files of all writable folders may hold together; they are in memory."""
    memory_mb: int = 4096
    """Private writable memory of one process in MiB."""
    processes: int = 512
    open_files: int = 1024


class BoxSettings(NamedTuple):
    """What a zygote gets to make a box of."""

    required: list[str]
    """Walls that must be put up."""
    rules: AccessRules
    """What it shows of the machine, to be read; the user of its commands, where we are root."""
    spec: BoxSpec


class BoxRequest(NamedTuple):
    """One thing to do in a box."""

    kind: str
    """`exec`, or a function of box_files."""
    arguments: list[Any]
    environment: dict[str, str]
    folder: str
    wall_seconds: float
    output_bytes: int
    """Most bytes that are kept of each stream: half of its beginning, half of its end."""
    merged: bool
    """Whether standard error goes where standard output goes."""
    stdin: bytes


@dataclass(slots=True)
class Output:
    """What is kept of a stream."""

    descriptor: int
    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def read(self) -> bool:
        """Take what has come. False where nothing has, or at its end."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return False
        room = max(0, self.most // 2 - len(self.head))
        self.head += chunk[:room]
        self.tail += chunk[room:]
        excess = len(self.tail) - self.most // 2
        if excess > 0:
            self.left_out += excess
            del self.tail[:excess]
        return bool(chunk)

    def text(self) -> bytes:
        """All that is kept, with a line that says how much is not."""
        cut = b"\n(%d bytes are left out here)\n" % self.left_out if self.left_out else b""
        return bytes(self.head) + cut + bytes(self.tail)


class Init:
    """Serves requests. capabilities: those that commands have, by which they may write to the tree
    of another user. writable: all folders that they may write to, where no namespace says so.
    """

    def __init__(
        self,
        settings: BoxSettings,
        sock: FramedSocket,
        capabilities: Sequence[int],
        writable: Sequence[str],
    ) -> None:
        self._settings, self._sock, self._capabilities = settings, sock, capabilities
        self._namespaced = "namespaces" in settings.required
        filters = [repository_filter()]
        if not self._namespaced:
            filters = [family_filter(starts_programs=True, locks=True), process_filter(True)]
        self._filters = list(map(Filter, filters))
        self._landlock = -1
        if not self._namespaced and "landlock" in settings.required:
            rules = settings.rules
            self._landlock = landlock.rules_of(rules.readable, rules.listable, writable)

    def serve(self) -> None:
        """Answer requests until the other side hangs up."""
        with contextlib.suppress(ConnectionError):
            while True:
                request = BoxRequest(*read_message(self._sock.receive()))
                self._sock.send(message(*self.answer(request)))

    def answer(self, request: BoxRequest) -> tuple[object, ...]:
        """Do it, and end all that it has started. The first fields of a Result."""
        started = time.monotonic()
        stdin = kernel.memory_file(request.stdin)
        pipes = [os.pipe() for _ in range(2 - request.merged)]
        child = kernel.fork()
        if child == 0:
            self._become(request, stdin, pipes[0][1], pipes[-1][1])
        for descriptor in (stdin, *(writing for _, writing in pipes)):
            os.close(descriptor)
        outputs = [Output(reading, request.output_bytes) for reading, _ in pipes]
        in_time = self._watch(child, outputs, started + request.wall_seconds)
        ends = self._end(child)
        for output in outputs:
            while output.read():
                pass
            os.close(output.descriptor)
        code = next(os.waitstatus_to_exitcode(end.status) for end in ends if end.pid == child)
        ended = Ended.WALL if not in_time else Ended.CRASHED if code < 0 else Ended.EXITED
        details = {
            Ended.WALL: f"took more than {request.wall_seconds:g} s",
            Ended.CRASHED: f"killed by {kernel.signal_name(-code)}",
        }
        detail = details.get(ended, f"exited with status {code}" if code else "")
        cpu_seconds = sum(end.cpu_seconds for end in ends)
        used = cpu_seconds, time.monotonic() - started, max(end.memory_mb for end in ends)
        return ended, detail, code, *used, b"", *(output.text() for output in outputs)

    def _watch(self, child: int, outputs: Sequence[Output], deadline: float) -> bool:
        """Read what it writes until it ends. False where its time is up. Ends this process where
        the other side hangs up.
        """
        poll, pidfd = select.poll(), os.pidfd_open(child)
        watched = {output.descriptor: output for output in outputs}
        for descriptor in watched:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        poll.register(self._sock.stream, select.POLLRDHUP)
        try:
            while (left := deadline - time.monotonic()) > 0:
                for descriptor, _ in poll.poll(1000 * left + 1):
                    if descriptor == pidfd:
                        return True
                    if descriptor not in watched:
                        self._end(child)
                        os._exit(0)
                    if not watched[descriptor].read():
                        poll.unregister(descriptor)
        finally:
            os.close(pidfd)
        return False

    def _end(self, child: int) -> list[kernel.ProcessEnd]:
        """Kill everything in the box, and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            # atomic: nothing can fork out of it. Without a namespace, nothing can leave its group
            os.kill(-1 if self._namespaced else -child, signal.SIGKILL)
        return kernel.wait_for_all(-1)

    def _become(self, request: BoxRequest, *streams: int) -> NoReturn:
        """In a child: give up what a command does not need, and do the request."""
        try:
            os.setsid()
            for at, stream in enumerate(streams):
                os.dup2(stream, at)
            self._give_up()
            os.closerange(3, MOST_FILES)
            os.chdir(request.folder)
            if request.kind == "exec":
                os.execvpe(request.arguments[0], request.arguments, request.environment)
            os.environ.update(request.environment)
            getattr(box_files, request.kind)(*request.arguments)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  a child must never return into its parent
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(NOT_DONE)

    def _give_up(self) -> None:
        """Put up the walls around a command. Raises OSError."""
        spec = self._settings.spec
        user = USER if self._namespaced else self._settings.rules.user
        for signal_number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(signal_number, signal.SIG_DFL)
        if user is not None:
            if os.getuid() == 0:
                os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        kernel.drop_capabilities(self._capabilities)
        kernel.forgo_privileges()
        limits = {"CORE": 0, "MEMLOCK": 0, "DATA": spec.memory_mb * MIB,
                  "FSIZE": spec.size_mb * MIB, "NOFILE": spec.open_files}  # fmt: skip
        if self._namespaced:  # else others count too
            limits["NPROC"] = spec.processes
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        if self._landlock >= 0:
            landlock.enforce(self._landlock)
        for each in self._filters:
            each.load()
