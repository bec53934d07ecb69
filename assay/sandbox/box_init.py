"""The first process of a box: it takes one request after another from its socket, to run a command
or to do something with files.

A child does each, after it has given up what a command does not need, so that nothing that a
command left can lead our own code astray. After a request, all that runs in the box is killed,
but for the daemons that the trainer has started.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from assay.sandbox import box_files, kernel, landlock
from assay.sandbox.box_daemons import Daemons
from assay.sandbox.box_output import GIVEN_UP, Output, Stop, ending
from assay.sandbox.box_watch import BoxFolder, BoxWatch, remove_segments
from assay.sandbox.kernel import MIB, MOST_FILES
from assay.sandbox.namespaces import AccessRules
from assay.sandbox.program import Ended
from assay.sandbox.seccomp import Filter, family_filter, process_filter, repository_filter
from assay.sandbox.sockets import FramedSocket, message, read_message

USER = 1000
"""What the user of all commands is called in a user namespace."""
NOT_DONE = 126
"""The status of a request that failed before a command was there."""
DIES_LATE = 900
"""The score by which the out-of-memory killer takes a box's first process after its commands."""
TOGETHER_MB = 256
"""What all processes of a box may use together beyond the memory of one."""
STOPPED_SECONDS = 1.0
"""How long a signal may keep a command stopped, which would hold the box for all its time."""


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
    """Private writable memory of one process in MiB; all together may use TOGETHER_MB more."""
    processes: int = 512
    open_files: int = 1024
    covered: tuple[str, ...] = ()
    """Files and folders among what it shows that are empty in it, where it has namespaces."""
    writable: tuple[str, ...] = ()
    """Absolute paths of more folders that commands may write to, empty at first. A box that has
    some needs namespaces, and shows none of an image's files of these names."""


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
    """`exec`; `start`, of a command that is to be a daemon; `exchange`, with the daemon of a
    number; `stop`, of that; a function of box_files; or `rest`, which does nothing."""
    arguments: list[Any]
    environment: dict[str, str]
    folder: str
    wall_seconds: float
    output_bytes: int
    """Most bytes that are kept of each stream: half of its beginning, half of its end."""
    merged: bool
    """Whether standard error goes where standard output goes."""
    stdin: bytes


def is_stopped(child: int) -> bool:
    """Whether a signal has stopped a child."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def failure_of(pipe: int) -> int:
    """The number of the error that a child wrote to a pipe, which is closed; 0 where none did."""
    os.set_blocking(pipe, False)
    try:
        return int(os.read(pipe, 16) or 0)
    except BlockingIOError:
        return 0
    finally:
        os.close(pipe)


class OomScore:
    """By which the out-of-memory killer chooses among this process and its children. It is opened
    before a box makes /proc read-only, in which a command could lower its own. An ordinary user
    without namespaces, whose processes are undumpable, sets none: all have the same.
    """

    def __init__(self) -> None:
        self._own = int(kernel.read_text(kernel.OOM_SCORE))
        self._file = -1
        with contextlib.suppress(PermissionError):
            self._file = os.open(kernel.OOM_SCORE, os.O_WRONLY)

    def fork(self) -> int:
        """Fork a child that is taken before this process. Raises OSError."""
        self._set(kernel.DIES_FIRST)
        child = kernel.fork()
        if child:
            self._set(self._own)
        return child

    def _set(self, score: int) -> None:
        if self._file >= 0:
            os.pwrite(self._file, str(score).encode(), 0)


class Init:
    """Serves requests. capabilities: those that commands have, by which they may write to the tree
    of another user. folder: the only one that they may write to, where no namespace says so.
    tcp_mb: what a socket of TCP may hold.
    """

    def __init__(
        self,
        settings: BoxSettings,
        sock: FramedSocket,
        score: OomScore,
        capabilities: Sequence[int],
        folder: str,
        tcp_mb: float = 0.0,
    ) -> None:
        self._settings, self._sock, self._capabilities = settings, sock, capabilities
        self._namespaced = "namespaces" in settings.required
        self._score, self._tcp_mb = score, tcp_mb
        self._daemons = Daemons(self._namespaced)
        filters = [repository_filter("group" in settings.required)]
        if not self._namespaced:
            filters = [family_filter(starts_programs=True, locks=True), process_filter(True)]
        self._filters = list(map(Filter, filters))
        spec = settings.spec
        self._folder = None
        if folder:
            self._folder = BoxFolder(folder, spec.size_mb, spec.files, spec.processes)
        self._landlock = -1
        if not self._namespaced and "landlock" in settings.required:
            rules = settings.rules
            self._landlock = landlock.rules_of(rules.readable, rules.listable, (folder,))

    def serve(self) -> None:
        """Answer requests until the other side hangs up. One that comes while another is done ends
        that, and both are answered.
        """
        with contextlib.suppress(ConnectionError):
            while True:
                request = BoxRequest(*read_message(self._sock.receive_next()))
                try:
                    answer = self.answer(request)
                except (OSError, MemoryError) as error:  # the machine's: nothing runs here then
                    answer = Ended.LOST, f"{type(error).__name__}: {error}"
                self._sock.send(message(*answer))

    def answer(self, request: BoxRequest) -> tuple[object, ...]:
        """Do it, and end all that it has started. The first fields of a Result."""
        if request.kind == "rest":
            return Ended.EXITED, "", 0, 0.0, 0.0, 0.0, b"", b"", b"", 0, 0
        spec, started = self._settings.spec, time.monotonic()
        watch = BoxWatch(spec.memory_mb + TOGETHER_MB, spec.size_mb, self._folder, self._tcp_mb)
        self._daemons.wake()
        if request.kind in ("start", "stop"):
            is_new = request.kind == "start"
            number = self._start(request) if is_new else self._stop(*request.arguments)
            used = 0.0, time.monotonic() - started, 0.0
            return Ended.EXITED, "", number, *used, b"", b"", b"", 0, 0
        if request.kind == "exchange":
            return self._exchange(request, watch)
        stdin, failures = kernel.memory_file(request.stdin), os.pipe()
        pipes = [os.pipe() for _ in range(2 - request.merged)]
        child = self._score.fork()
        if child == 0:
            self._become(request, failures[1], stdin, pipes[0][1], pipes[-1][1])
        for descriptor in (stdin, failures[1], *(writing for _, writing in pipes)):
            os.close(descriptor)
        outputs = [Output(reading, request.output_bytes) for reading, _ in pipes]
        try:
            stop = self._watch(child, outputs, request.wall_seconds, watch)
        finally:  # whatever fails here, nothing of the command goes on
            ends = self._end(child)
        for output in outputs:
            while output.read():
                pass
            os.close(output.descriptor)
        code = next(os.waitstatus_to_exitcode(end.status) for end in ends if end.pid == child)
        if stop and self._daemons.pids and (excess := watch.excess()):
            self._daemons.kill(excess)  # else it would end each later command
            ends += self._end(None)
        ended, detail = stop or ending(code)
        cpu_seconds = watch.orphans_cpu_seconds + sum(end.cpu_seconds for end in ends)
        memory_mb = max(watch.peak_mb, *(end.memory_mb for end in ends))
        used = cpu_seconds, time.monotonic() - started, memory_mb
        texts = [*(output.text() for output in outputs), b""][:2]
        left_out = sum(output.left_out for output in outputs)
        return ended, detail, code, *used, b"", *texts, left_out, failure_of(failures[0])

    def _start(self, request: BoxRequest) -> int:
        """Start a daemon. Its number."""
        (ours, theirs), (reading, writing) = socket.socketpair(), os.pipe()
        child = self._score.fork()
        if child == 0:
            self._become(request, -1, theirs.fileno(), theirs.fileno(), writing)
        theirs.close()
        os.close(writing)
        number = self._daemons.add(child, ours, reading)
        self._end(None)
        return number

    def _stop(self, number: int) -> int:
        """Stop a daemon. Its number."""
        self._daemons.stop(number)
        self._end(None)
        return number

    def _exchange(self, request: BoxRequest, watch: BoxWatch) -> tuple[object, ...]:
        """Give a daemon what is to be written to it, and take what it answers."""
        (number,), started, output = request.arguments, time.monotonic(), bytearray()
        try:
            stop = self._daemons.exchange(
                number, request.stdin, output, request.wall_seconds, request.output_bytes, watch,
                self._sock.stream,
            )  # fmt: skip
        finally:
            self._end(None)
        ended, detail = stop or (Ended.EXITED, "")
        used = 0.0, time.monotonic() - started, watch.peak_mb
        return ended, detail, 0, *used, b"", bytes(output), self._daemons.errors(number), 0, 0

    def _watch(
        self, child: int, outputs: Sequence[Output], wall_seconds: float, watch: BoxWatch
    ) -> Stop | None:
        """Read what it writes until it ends. Why it must be ended, if so: the next request is one
        reason. Ends this process where the other side hangs up.
        """
        deadline, stopped_seconds = time.monotonic() + wall_seconds, 0.0
        last_look = time.monotonic()
        poll, pidfd = select.poll(), os.pidfd_open(child)
        watched = {output.descriptor: output for output in outputs}
        for descriptor in watched:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        poll.register(self._sock.stream, select.POLLIN | select.POLLRDHUP)
        try:
            while (left := deadline - time.monotonic()) > 0:
                wait = min(left, max(0.0, watch.next_look - time.monotonic()))
                for descriptor, event in poll.poll(1000 * wait + 1):
                    if descriptor == pidfd:
                        return None
                    if descriptor not in watched:
                        if event == select.POLLIN:
                            return GIVEN_UP
                        self._end(child)
                        os._exit(0)
                    if not watched[descriptor].read():
                        poll.unregister(descriptor)
                if time.monotonic() >= watch.next_look:
                    watch.reap({child, *self._daemons.pids})
                    if end := watch.excess():
                        return end
                    before, last_look = last_look, time.monotonic()
                    stopped_seconds += (last_look - before) * is_stopped(child)
                    if stopped_seconds > STOPPED_SECONDS:
                        return Ended.CRASHED, "stopped by a signal"
        finally:
            os.close(pidfd)
        return Ended.WALL, f"took more than {wall_seconds:g} s"

    def _end(self, child: int | None) -> list[kernel.ProcessEnd]:
        """Kill everything in the box but the daemons, and wait for it."""
        ends = self._daemons.end_others(child)
        if self._namespaced:
            remove_segments()
        return ends

    def _become(self, request: BoxRequest, failure: int, *streams: int) -> NoReturn:
        """In a child: give up what a command does not need, and do the request. failure: a pipe to
        which the number of an error is written, which closes as a command begins; or -1.
        """
        number = errno.EINVAL
        try:
            os.setsid()
            for at, stream in enumerate(streams):
                os.dup2(stream, at)
            self._give_up()
            os.closerange(3, max(3, failure))
            os.closerange(max(3, failure + 1), MOST_FILES)
            os.chdir(request.folder)
            if request.kind in ("exec", "start"):
                os.execvpe(request.arguments[0], request.arguments, request.environment)
            os.environ.update(request.environment)
            getattr(box_files, request.kind)(*request.arguments)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  a child must never return into its parent
            number = getattr(error, "errno", 0) or number
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
        finally:
            if failure >= 0:
                os.write(failure, b"%d" % number)
            os._exit(NOT_DONE)

    def _give_up(self) -> None:
        """Put up the walls around a command. Raises OSError."""
        spec = self._settings.spec
        user = USER if self._namespaced else self._settings.rules.user
        for signal_number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # ignored so far
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
            kernel.set_limit(name, value)
        if self._landlock >= 0:
            landlock.enforce(self._landlock)
        for each in self._filters:
            each.load()
