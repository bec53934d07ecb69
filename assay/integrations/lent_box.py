"""A box for trainers and evaluators of others: a folder in which untrusted commands run.

async with await LentBox.open(Path("tree")) as box:
    done = await box.run("make test", seconds=60)
    report = await box.get("report.xml")
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import inf
from pathlib import Path
from types import TracebackType

from assay.errors import DataError, SandboxError, SettingsError
from assay.sandbox.box import READ_MB, Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.kernel import MIB
from assay.sandbox.program import Ended, Result

Command = str | Sequence[str]
"""A program and its words; or text for bash."""
SYSTEM = ("/", "/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/lib", "/lib64", "/sbin", "/tmp")
"""Folders that no option may replace."""


USERS = (None, "user", "1000", 1000)
"""How evaluators may call the only user of a box."""
LONGEST_SECONDS = 86_400.0
"""The time of a command without a limit."""


class CommandCause(StrEnum):
    """Why a command has no exit status of its own."""

    NONE = ""
    """It has one."""
    TIME = "time"
    """Its time was up. All that it had started is killed."""
    MEMORY = "memory"
    """The box used too much memory, or its files too much room."""
    KILLED = "killed"
    """A signal ended it, or the box did for what it was doing; `detail` says which."""
    GONE = "gone"
    """The process that was to answer has ended."""
    NOT_STARTED = "not started"
    """It could not be started; `error` is the system's number."""
    BOX_ENDED = "box ended"
    """A command has ended its box: nothing more runs there."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a command, also of one that fails. Only a failure of the machine raises, as
    SandboxError.
    """

    status: int
    """Its exit status. Without one it is what shells say: 124 for time, 126 or 127 for what was not
    started, 128 and the number of the signal."""
    stdout: bytes
    stderr: bytes
    """Up to `output_bytes` of each: half of its beginning, half of its end, and a line between that
    says how much is left out."""
    cause: CommandCause = CommandCause.NONE
    detail: str = ""
    """The cause in one line for people."""
    left_out: int = 0
    """Bytes of output that are not kept; above 0 the output was too much."""
    error: int = 0
    """The number of the error (module errno) for which it was not started."""

    @property
    def ok(self) -> bool:
        """Says whether it exited with status 0."""
        return self.cause is CommandCause.NONE and self.status == 0


class LentBox:
    """An open box, which `open` makes. Commands take turns, and what one has started ends with it.
    A process of `start` stays until `stop` or the end of the box.

    All paths are paths in the box. Relative ones lie in its work folder, and none leads out of it.
    Every method raises SandboxError where the machine has failed or the box is closed. A call that
    is cancelled is ended in the box, which lives on.
    """

    def __init__(self, box: Box, ends: contextlib.AsyncExitStack) -> None:
        self._box, self._ends = box, ends

    @classmethod
    async def open(
        cls, tree: Path | None = None, *, folder: str = "/testbed", roots: Sequence[Path] = (),
        image: Path | None = None, environment: Mapping[str, str] | None = None,
        writable: Sequence[str] = (), memory_mb: int = 4096, size_mb: int = 2048,
        processes: int = 512, allow_weak: bool = False,
    ) -> LentBox:  # fmt: skip
        """Opens a box whose work folder begins with the files of the folder `tree`. Commands never
        change `tree` itself. Without `tree` the work folder is empty.

        folder: its path, where boxes have namespaces. roots: folders with an interpreter or tools,
        which are there at the same paths, read-only. image: an unpacked image whose folder is `/`.
        environment: variables of all commands. writable: absolute paths of more folders to write
        to, where boxes have namespaces. size_mb: what all files may hold. allow_weak: open even
        where the sandbox is not sound.

        Raises DataError for a tree or an image that is not a folder and for roots that do not
        exist, SettingsError for any other argument that cannot be used, SandboxError if this
        machine cannot have boxes.
        """
        isolation = await asyncio.to_thread(probe_isolation)
        if not (isolation.sound or allow_weak):
            raise SandboxError(
                f"isolation is tier {isolation.tier} here: {isolation.advice}; see `assay doctor`"
            )
        require_own((folder, *writable))
        require_sendable((), environment, memory_mb, size_mb, processes)
        if min(memory_mb, size_mb, processes) < 1:  # to the kernel, no size is one without an end
            raise SettingsError("a box needs a memory_mb, a size_mb and processes of 1 or more")
        roots = [root.absolute() for root in roots]
        image = image and image.absolute()
        require_there(image, roots)
        ends = contextlib.AsyncExitStack()
        try:
            if tree is None:
                tree = Path(tempfile.mkdtemp(prefix="assay-empty-"))
                ends.callback(shutil.rmtree, tree, ignore_errors=True)
            elif not tree.is_dir():
                raise DataError(f"a box needs a folder, and {tree} is none")
            spec = BoxSpec(
                tree, tuple(roots), environment or {}, folder, image, memory_mb=memory_mb,
                size_mb=size_mb, processes=processes, writable=tuple(writable),
            )  # fmt: skip
            boxes = boxes_of(os.getpid(), isolation.walls)
            return cls(await ends.enter_async_context(boxes.open(spec)), ends)
        except BaseException:
            await ends.aclose()
            raise

    @property
    def folder(self) -> str:
        """Returns the path of the work folder in the box."""
        return self._box.folder

    @property
    def form(self) -> str:
        """Says how it is isolated, by a key of assay.sandbox.box.FORMS."""
        return self._box.form

    async def run(
        self, command: Command, *, folder: str = "", environment: Mapping[str, str] | None = None,
        stdin: bytes = b"", seconds: float = 60.0, output_bytes: int = MIB, merged: bool = False,
    ) -> Finished:  # fmt: skip
        """Runs a command for up to `seconds`, in `folder` or else in the work folder. Up to
        `output_bytes` of each stream are kept. With `merged`, standard error goes to standard
        output. Raises SettingsError for words and variables that are not texts, and for numbers
        that cannot be used.
        """
        require_sendable(command, environment, seconds, output_bytes)
        result = await self._box.run(
            words_of(command), wall_seconds=seconds, output_bytes=output_bytes, merged=merged,
            stdin=stdin, environment=environment, folder=self._inside(folder),
        )  # fmt: skip
        return finished(
            result, CommandCause.BOX_ENDED if self._box.has_ended else CommandCause.KILLED
        )

    async def put(self, path: str, data: bytes, executable: bool = False) -> None:
        """Writes a file with the rights of a command, and makes missing folders. Raises the
        OSError that Python would, such as PermissionError or IsADirectoryError.
        """
        with as_named(path):
            await self._box.put(self._inside(path), data, executable)

    async def get(self, path: str, most: int = READ_MB * MIB) -> bytes:
        """Returns the content of a file. Raises the OSError that Python would, such as
        FileNotFoundError, and one with EFBIG if the file has more than `most` bytes.
        """
        with as_named(path):
            return await self._box.get(self._inside(path), most)

    async def start(self, command: Command, *, environment: Mapping[str, str] | None = None) -> int:
        """Starts a process that outlives commands, and returns its number. It runs only while the
        box runs a command or an exchange. Raises ValueError if the box already has as many as it
        may have, SettingsError as `run` does.
        """
        require_sendable(command, environment)
        return await self._box.start(words_of(command), environment=environment)

    async def exchange(
        self, number: int, data: bytes, *, seconds: float = 60.0, output_bytes: int = MIB
    ) -> Finished:
        """Writes to the process `number`, and reads until it has written a line, for up to
        `seconds`. If the time is up first, the cause is TIME, and the output is what it has written
        so far. Raises ValueError for a process that was stopped, SettingsError for numbers that
        cannot be used.
        """
        require_sendable((), None, seconds, output_bytes)
        result = await self._box.exchange(
            number, data, wall_seconds=seconds, output_bytes=output_bytes
        )
        return finished(
            result, CommandCause.BOX_ENDED if self._box.has_ended else CommandCause.GONE
        )

    async def stop(self, number: int) -> None:
        """Ends the process `number`, with all that it has started. Raises ValueError if it was
        stopped already.
        """
        await self._box.stop(number)

    async def close(self) -> None:
        """Ends the box and all that runs in it. A second call does nothing."""
        await self._ends.aclose()

    async def __aenter__(self) -> LentBox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.close()

    def _inside(self, path: str) -> str:
        """A path in the box: a relative one lies in the work folder."""
        return posixpath.join(self.folder, path)


@cache
def boxes_of(pid: int, walls: tuple[str, ...]) -> Boxes:
    """What opens the boxes of a process; a fork has its own."""
    return Boxes(walls)


def words_of(command: Command) -> tuple[str, ...]:
    """The words of a command."""
    return ("bash", "-c", command) if isinstance(command, str) else tuple(command)


@contextlib.contextmanager
def as_named(path: str) -> Iterator[None]:
    """Lets errors name the path as the caller does."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), path) from None


def require_own(paths: Sequence[str]) -> None:
    """Raises SettingsError for paths that may not be folders of a box's own."""
    for path in paths:
        is_whole = path.startswith("/") and posixpath.normpath(path) == path
        if not is_whole or path in SYSTEM or path.startswith(("/proc/", "/sys/", "/dev/")):
            raise SettingsError(
                f"a box cannot have {path!r} as its own folder: name an absolute path that is not"
                " the system's"
            )


def require_there(image: Path | None, roots: Sequence[Path]) -> None:
    """Raises DataError for an image that is no folder, and for roots that are not there."""
    if image is not None and not image.is_dir():
        raise DataError(f"a box needs an unpacked image, and {image} is no folder")
    for root in roots:
        if not root.exists():
            raise DataError(f"a box cannot show {root}: it is not there")


def require_sendable(
    command: Command, environment: Mapping[str, str] | None, *numbers: float
) -> None:
    """Raises SettingsError for words and variables that are no texts, and for numbers below 0 or
    without an end.
    """
    variables = environment or {}
    for what, values in (("words", command), ("variables", [*variables, *variables.values()])):
        for value in values:
            if not isinstance(value, str):
                raise SettingsError(f"the {what} of a command are texts, and {value!r} is none")
    for number in numbers:
        if not isinstance(number, int | float) or not 0 <= number < inf:
            raise SettingsError(f"a box cannot take {number!r} for a number")


def finished(result: Result, killed: CommandCause) -> Finished:
    """The same for callers outside. killed: the cause where it was ended for what it did."""
    status, outputs = result.exit_status, (result.stdout, result.stderr)
    if result.error:
        why = os.strerror(result.error)
        return Finished(status, *outputs, CommandCause.NOT_STARTED, why, 0, result.error)
    causes = {
        Ended.EXITED: CommandCause.NONE, Ended.WALL: CommandCause.TIME,
        Ended.MEMORY: CommandCause.MEMORY,
    }  # fmt: skip
    cause = causes.get(result.ended, killed)
    return Finished(status, *outputs, cause, result.detail if cause else "", result.left_out)
