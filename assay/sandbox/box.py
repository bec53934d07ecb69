"""A world that lasts: one tree, commands one after another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from assay.errors import SandboxError
from assay.sandbox.box_init import BoxRequest, BoxSpec
from assay.sandbox.kernel import MIB
from assay.sandbox.program import ENVIRONMENT, Ended, Result
from assay.sandbox.sockets import OversizedError, framed, message, receive, send

GIT_SETTINGS = {"safe.directory": "*", "user.name": "user", "user.email": "user@localhost"}
GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{at}": name for at, name in enumerate(GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(GIT_SETTINGS.values())},
}
"""Variables by which git works in a tree of another user."""
FILE_SECONDS = 60.0
GRACE_SECONDS = 30.0
"""How much longer than a command's time a box may take to answer."""
READ_MB = DIFF_MB = 16
MOST_DAEMONS = 8
RUNNING = ("exec", "start", "exchange", "stop")
"""Requests in which programs run that may end the box."""
ROOM_BYTES = MIB
"""What a box may answer beside the output of a command."""


FORMS = {
    "overlay": "namespaces, and an overlay on the tree",
    "copy": "namespaces, and a copy of the tree, since overlays are refused",
    "folder": "a copy of the tree to which landlock confines commands: they have no /tmp, /dev/shm,"
    " /proc, /etc/passwd, sockets, sessions, terminals, file locks, extended attributes, chmod,"
    " chown and kill, so `git init` fails and multiprocessing cannot start",
}


class Box:
    """An open box. Commands take turns, and what one has started is killed when it ends. A daemon
    is a process that stays until the box is closed. It runs only while the box does something.

    Whatever a command does can only fail itself. If one ends the box, no other follows, and nothing
    can be done with its files. Every method raises SandboxError where the machine has failed, after
    which the box is closed, and where it is closed meanwhile. A call that is cancelled is ended in
    the box, which lives on; no other is done before.

    zygote: the process whose end is the machine's failure.
    """

    def __init__(
        self, spec: BoxSpec, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        zygote: subprocess.Popen[bytes],
    ) -> None:  # fmt: skip
        self._spec, self._reader, self._writer, self._zygote = spec, reader, writer, zygote
        self._turn = asyncio.Lock()
        self._is_closed = False
        self._rests = 0
        """How many answers follow that of a call that was cancelled."""
        self._unread = dict[int, bytes]()
        """What daemons have written in exchanges that were cancelled, the last MIB of it."""
        self._daemons = 0
        """How many there were."""
        self._open = set[int]()
        """The numbers of those that were not stopped."""
        self._last: Result | None = None
        """What came of the command that has ended the box, if one has."""
        self.form = self.folder = self.temporary = self.tree = ""
        """One of FORMS; the paths inside of the work folder, of one for temporary files, and of the
        trusted copy."""

    async def run(
        self, argv: Sequence[str], *, wall_seconds: float = 60.0, output_bytes: int = MIB,
        merged: bool = False, stdin: bytes = b"", environment: Mapping[str, str] | None = None,
        folder: str = "",
    ) -> Result:  # fmt: skip
        """Runs a command. output_bytes: how much is kept of each stream, half of its beginning and
        half of its end. merged: whether both streams become standard output. folder: where, instead
        of the work folder. The result is EXITED, CRASHED, WALL where its time is up, or MEMORY
        where the box used too much.
        """
        variables = {**self._variables(), **(environment or {})}
        return await self._ask(BoxRequest(
            "exec", list(argv), variables, folder or self.folder, wall_seconds, output_bytes,
            merged, stdin,
        ))  # fmt: skip

    async def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> int:
        """Starts a daemon in the work folder, and returns its number. If it cannot be started, that
        shows when it is talked with. Raises ValueError beyond MOST_DAEMONS that were not stopped.
        """
        variables = {**self._variables(), **(environment or {})}
        done = await self._ask(BoxRequest(
            "start", list(argv), variables, self.folder, FILE_SECONDS, 0, False, b""
        ))  # fmt: skip
        return self._number_daemon() if self.has_ended else done.status

    async def exchange(
        self, daemon: int, data: bytes, *, wall_seconds: float, output_bytes: int = MIB
    ) -> Result:
        """Writes to the standard input of a daemon, and reads its standard output until that has
        the end of a line, or `output_bytes`. More may follow the line, and the rest of a line may
        come with the next exchange. The result is EXITED where there was an end of a line, WALL
        where its time is up, CRASHED where the daemon has ended, and MEMORY where it used too much
        and was ended. Its `stderr` is what the daemon wrote there so far. What a cancelled exchange
        had read comes with the next. Raises ValueError for one that was stopped.
        """
        if daemon not in self._open:
            raise ValueError(f"the box has no daemon {daemon}")
        async with self._turn:  # one that was cancelled may not have ended yet
            has_line = b"\n" in self._unread.get(daemon, b"")
        result = await self._ask(BoxRequest(
            "exchange", [daemon], {}, self.folder, 0.0 if has_line else wall_seconds,
            output_bytes, False, data,
        ))  # fmt: skip
        unread = self._unread.pop(daemon, b"")
        if has_line and result.ended is Ended.WALL:
            result = result._replace(ended=Ended.EXITED, detail="")
        return result._replace(stdout=unread + result.stdout)

    async def stop(self, daemon: int) -> None:
        """Ends a daemon, with all that it has started. Raises ValueError for one that was
        stopped.
        """
        if daemon not in self._open:
            raise ValueError(f"the box has no daemon {daemon}")
        self._open.remove(daemon)
        self._unread.pop(daemon, None)
        await self._ask(BoxRequest("stop", [daemon], {}, self.folder, FILE_SECONDS, 0, False, b""))

    async def write(
        self, files: Mapping[str, bytes], executable: Collection[str] = (), folder: str = ""
    ) -> None:
        """Writes files, by paths in a folder, instead of the work folder. It removes what stands in
        the way of one, links included. Raises OSError.
        """
        listed = [(path, data, path in executable) for path, data in files.items()]
        await self._do("write", listed, folder=folder)

    async def copy(self, source: str, target: str, paths: Collection[str]) -> None:
        """Makes files and links of the folder `target`, which may be new, what they are in
        `source`, removed ones included. Raises OSError.
        """
        await self._do("copy", source, target, list(paths))

    async def read(self, path: str, most: int = READ_MB * MIB) -> bytes:
        """Returns the content of a file. Raises OSError where there is none, or more than `most`
        bytes.
        """
        return await self._do("read", path, most=most)

    async def put(self, path: str, data: bytes, executable: bool = False) -> None:
        """Writes a file as a command would. Links are followed, what may not be written stays, and
        missing folders are made. Raises OSError.
        """
        await self._do("put", path, data, executable)

    async def get(self, path: str, most: int = READ_MB * MIB) -> bytes:
        """Returns the content of a file as a command would read it. Raises OSError; its number is
        EFBIG beyond `most` bytes.
        """
        return await self._do("get", path, most, most=most)

    async def diff(self, most: int = DIFF_MB * MIB) -> str:
        """Returns how the work folder differs from the tree, as git tells it, with binary files.
        Bytes that are no UTF-8 are surrogates. Caches and git's own folder are left out. Raises
        OSError for one of more than `most` bytes.
        """
        data = await self._do("diff", self.tree, self.temporary, most=most, statuses=(0, 1))
        return data.decode("utf-8", "surrogateescape")

    async def fitting_diff(self, most: int = DIFF_MB * MIB) -> tuple[str, str]:
        """As `diff`, at the end of a box's use; where that cannot be had, of the files that fit.
        Also what is left out, in words. Temporary files are then removed. Never raises OSError: the
        diff may be empty.
        """
        with contextlib.suppress(OSError):
            return await self.diff(most), ""
        why = ""
        for share in (most // 2, most // 64):
            try:
                fits = self.tree, self.temporary, share
                result = await self._done("diff", *fits, most=most, statuses=(0, 1))
            except OSError as error:
                why = f"everything: {str(error)[:200]}"
            else:
                left_out = result.stderr.decode("utf-8", "replace").partition("\n")[0]
                return result.stdout.decode("utf-8", "surrogateescape"), left_out
        return "", why

    async def changes(self) -> list[str]:
        """Returns the paths of all files that are not as in the tree, caches included. Raises
        OSError.
        """
        listed = await self._do("changes", self.tree, most=DIFF_MB * MIB)
        return [os.fsdecode(path) for path in listed.split(b"\0")[:-1]]

    @property
    def has_ended(self) -> bool:
        """Says whether a command has ended the box, so that nothing can be done in it any more."""
        return self._last is not None

    async def close(self) -> None:
        """Ends the box with what runs there, and waits until nothing is left of it."""
        self._is_closed = True
        self._writer.write_eof()
        async with self._turn:
            with contextlib.suppress(OSError):
                while await self._reader.read(MIB):
                    pass
        self._writer.close()

    def _number_daemon(self) -> int:
        """The number of a new daemon, which counts as open. Raises ValueError."""
        if len(self._open) == MOST_DAEMONS:
            raise ValueError(f"a box has up to {MOST_DAEMONS} daemons")
        self._daemons += 1
        self._open.add(self._daemons - 1)
        return self._daemons - 1

    def _variables(self) -> dict[str, str]:
        usual = {**ENVIRONMENT, "HOME": self.temporary, "TMPDIR": self.temporary, **GIT}
        return {**usual, **self._spec.environment}

    async def _do(
        self, kind: str, *arguments: Any, most: int = MIB, statuses: Collection[int] = (0,),
        folder: str = "",
    ) -> bytes:  # fmt: skip
        """Do something with files; what that prints. Raises as `_done`."""
        done = await self._done(kind, *arguments, most=most, statuses=statuses, folder=folder)
        return done.stdout

    async def _done(
        self, kind: str, *arguments: Any, most: int = MIB, statuses: Collection[int] = (0,),
        folder: str = "",
    ) -> Result:  # fmt: skip
        """Do something with files. Raises OSError, as what its number in the box says, and as
        TimeoutError where that takes too long.
        """
        place = folder or self.folder
        result = await self._ask(BoxRequest(
            kind, list(arguments), self._variables(), place, FILE_SECONDS, 2 * most, False, b""
        ))  # fmt: skip
        if result.ended is not Ended.EXITED or result.status not in statuses:
            text = result.stderr.decode("utf-8", "replace").strip()
            text = f"{kind} in a box: {text or result.detail}"
            if result.error:
                raise OSError(result.error, text)
            raise (TimeoutError if result.ended is Ended.WALL else OSError)(text)
        if len(result.stdout) > most:
            raise OSError(f"{kind} in a box: more than {most} bytes")
        return result

    async def _ask(self, request: BoxRequest) -> Result:
        """What comes of a request, which is ended where this is cancelled."""
        frame = framed(message(*request))
        await self._turn.acquire()
        answer = asyncio.ensure_future(self._answer(frame, request))
        answer.add_done_callback(lambda _: self._turn.release())
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(partial(self._keep, request))
            if not answer.done():
                self._rests += 1
                send(self._writer, *BoxRequest("rest", [], {}, "", 0.0, 0, False, b""))
                with contextlib.suppress(RuntimeError):  # its time is up just now
                    limit = asyncio.get_running_loop().time() + GRACE_SECONDS
                    self._limit.reschedule(limit)
                await asyncio.wait({answer})
            raise

    def _keep(self, request: BoxRequest, answer: asyncio.Future[Result]) -> None:
        """Keep what a daemon has written for the next exchange."""
        if request.kind == "exchange" and not answer.cancelled() and not answer.exception():
            (daemon,) = request.arguments
            self._unread[daemon] = (self._unread.get(daemon, b"") + answer.result().stdout)[-MIB:]

    async def _answer(self, frame: bytes, request: BoxRequest) -> Result:
        """What comes of a request in its turn."""
        if self._last is not None:
            return self._last
        if self._is_closed or self._writer.is_closing():
            raise SandboxError("the box has ended")
        if request.kind == "start":
            self._number_daemon()
        try:
            async with asyncio.timeout(request.wall_seconds + GRACE_SECONDS) as self._limit:
                self._writer.write(frame)
                most = 2 * request.output_bytes + ROOM_BYTES
                ended, *fields = await receive(self._reader, most)
                while self._rests:
                    self._rests -= 1
                    await receive(self._reader, ROOM_BYTES)
        except BaseException as error:  # its answer would be taken for that to the next one
            self._writer.transport.abort()
            has_ended = isinstance(error, ConnectionError | asyncio.IncompleteReadError)
            can_end = request.kind in RUNNING and not self._is_closed
            if has_ended and can_end and self._zygote.poll() is None:
                self._last = Result(Ended.CRASHED, "the command has ended its box")
                return self._last
            if isinstance(error, OSError | asyncio.IncompleteReadError | OversizedError):
                raise SandboxError("the box has ended") from None
            raise
        if ended == Ended.LOST:
            self._writer.transport.abort()
            raise SandboxError(f"a box can do nothing more: {fields[0]}")
        *rest, left_out, number = fields
        return Result(Ended(ended), *rest)._replace(left_out=left_out, error=number)
