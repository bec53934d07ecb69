"""A world that lasts: one tree, commands one after another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assay.errors import SandboxError
from assay.sandbox.access import access_rules
from assay.sandbox.box_init import BoxRequest, BoxSpec
from assay.sandbox.kernel import MIB
from assay.sandbox.landlock import NULL
from assay.sandbox.namespaces import AccessRules
from assay.sandbox.processes import start_python
from assay.sandbox.program import ENVIRONMENT, Ended, Result, message, read_message
from assay.sandbox.sockets import HEADER

__all__ = ["Box", "BoxSpec", "Boxes", "receive", "send"]

ZYGOTE = ("-I", "-m", "assay.sandbox.box_zygote")
BOX_USER = 59_999
"""The user of all commands, where we are root."""
SHOWN = ("/usr/sbin", "/sbin", "/usr/share", "/etc/ssl/certs")
"""What commands may read beside that which compilers may."""
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


FORMS = {
    "overlay": "namespaces, and an overlay on the tree",
    "copy": "namespaces, and a copy of the tree, since overlays are refused",
    "folder": "a copy of the tree to which landlock confines commands: they have no /tmp, /dev/shm,"
    " /proc, /etc/passwd, sockets, sessions, terminals, file locks, extended attributes, chmod,"
    " chown and kill, so git cannot commit and multiprocessing cannot start",
}


class Box:
    """An open box. Commands take turns: what one has started is killed when it ends.

    Whatever a command does can only fail itself. Every method raises SandboxError where the machine
    has failed, after which the box is closed.
    """

    def __init__(
        self, spec: BoxSpec, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._spec, self._reader, self._writer = spec, reader, writer
        self._turn = asyncio.Lock()
        self.form = self.folder = self.temporary = self.tree = ""
        """One of FORMS; the paths inside of the work folder, of one for temporary files, and of the
        trusted copy."""

    async def run(
        self, argv: Sequence[str], *, wall_seconds: float = 60.0, output_bytes: int = MIB,
        merged: bool = False, stdin: bytes = b"", environment: Mapping[str, str] | None = None,
        folder: str = "",
    ) -> Result:  # fmt: skip
        """Run a command. output_bytes: how much is kept of each stream: half of its beginning, half
        of its end. merged: whether both streams become standard output. folder: where, instead of
        the work folder. The result is EXITED, CRASHED, or WALL where its time is up.
        """
        variables = {**self._variables(), **(environment or {})}
        return await self._ask(BoxRequest(
            "exec", list(argv), variables, folder or self.folder, wall_seconds, output_bytes,
            merged, stdin,
        ))  # fmt: skip

    async def write(self, files: Mapping[str, bytes], executable: Collection[str] = ()) -> None:
        """Write files, by paths in the work folder. What stands in the way of one is removed, links
        included. Raises OSError.
        """
        listed = [(path, data, path in executable) for path, data in files.items()]
        await self._do("write", listed)

    async def copy(self, source: str, target: str, paths: Collection[str]) -> None:
        """Make files and links of the folder `target`, which may be new, what they are in `source`,
        removed ones included. Raises OSError.
        """
        await self._do("copy", source, target, list(paths))

    async def read(self, path: str, most: int = READ_MB * MIB) -> bytes:
        """The content of a file. Raises OSError where there is none, or more than `most` bytes."""
        return await self._do("read", path, most=most)

    async def diff(self, most: int = DIFF_MB * MIB) -> str:
        """How the work folder differs from the tree, as git tells it, with binary files; bytes that
        are no UTF-8 are surrogates. Caches and git's own folder are left out. Raises OSError for
        one of more than `most` bytes.
        """
        data = await self._do("diff", self.tree, most=most, statuses=(0, 1))
        return data.decode("utf-8", "surrogateescape")

    async def changes(self) -> list[str]:
        """The paths of all files that are not as in the tree, caches included. Raises OSError."""
        listed = await self._do("changes", self.tree, most=DIFF_MB * MIB)
        return [os.fsdecode(path) for path in listed.split(b"\0")[:-1]]

    async def close(self) -> None:
        """End it, and wait until nothing is left of it."""
        self._writer.write_eof()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._reader.read(MIB):
                pass
        self._writer.close()

    def _variables(self) -> dict[str, str]:
        usual = {**ENVIRONMENT, "HOME": self.temporary, "TMPDIR": self.temporary, **GIT}
        return {**usual, **self._spec.environment}

    async def _do(
        self, kind: str, *arguments: Any, most: int = MIB, statuses: Collection[int] = (0,)
    ) -> bytes:
        """Do something with files. Raises OSError, as TimeoutError where that takes too long."""
        variables = self._variables()
        result = await self._ask(BoxRequest(
            kind, list(arguments), variables, self.folder, FILE_SECONDS, 2 * most, False, b""
        ))  # fmt: skip
        if result.ended is not Ended.EXITED or result.status not in statuses:
            text = result.stderr.decode("utf-8", "replace").strip()
            error = TimeoutError if result.ended is Ended.WALL else OSError
            raise error(f"{kind} in a box: {text or result.detail}")
        if len(result.stdout) > most:
            raise OSError(f"{kind} in a box: more than {most} bytes")
        return result.stdout

    async def _ask(self, request: BoxRequest) -> Result:
        async with self._turn:
            try:
                async with asyncio.timeout(request.wall_seconds + GRACE_SECONDS):
                    send(self._writer, *request)
                    ended, *fields = await receive(self._reader)
            except BaseException as error:  # its answer would be taken for that to the next one
                self._writer.transport.abort()
                if isinstance(error, OSError | asyncio.IncompleteReadError):
                    raise SandboxError("the box has ended") from None
                raise
        return Result(Ended(ended), *fields)


def send(writer: asyncio.StreamWriter, *parts: object) -> None:
    """Write a message."""
    frame = message(*parts)
    writer.write(HEADER.pack(len(frame)) + frame)


async def receive(reader: asyncio.StreamReader) -> list[Any]:
    """The parts of the next message. Raises IncompleteReadError at the end."""
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return read_message(await reader.readexactly(length))


async def describe_boxes(required: Collection[str]) -> str:
    """What boxes are here, by opening one with these walls; or why there are none."""
    boxes = Boxes(required)
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with boxes.open(BoxSpec(Path(folder))) as box:
                done = await box.run(("true",))
                return FORMS[box.form] if done.status == 0 else f"none: {done.stderr.decode()}"
    except SandboxError as error:
        return f"none: {error}"
    finally:
        await boxes.close()


class Boxes:
    """Opens boxes, from a process that is started for the first one. required: the walls that each
    must put up.
    """

    def __init__(self, required: Collection[str]) -> None:
        self._required = list(required)
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.asynccontextmanager
    async def open(self, spec: BoxSpec) -> AsyncIterator[Box]:
        """A box, until the block ends. Raises SandboxError where it cannot be opened."""
        if spec.image and "namespaces" not in self._required:
            raise SandboxError(f"the image {spec.image} needs namespaces: tier A of assay doctor")
        root = spec.image or ""
        folders = ENVIRONMENT["PATH"].split(":")
        if not any(os.path.lexists(f"{root}{folder}/git") for folder in folders):
            raise SandboxError(f"boxes need git in {root}/usr/bin; install it (apt install git)")
        ours, theirs = socket.socketpair()
        with theirs:
            sent = spec._replace(tree=spec.tree.resolve(), roots=(), environment={})
            data = json.dumps([self._required, self._rules(spec), sent], default=str).encode()
            try:
                socket.send_fds(self._zygote(), [data], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise SandboxError(f"no box can be opened: {error}") from None
        reader, writer = await asyncio.open_connection(sock=ours)
        box = Box(spec, reader, writer)
        try:
            try:
                kind, *details = await receive(reader)
            except (OSError, asyncio.IncompleteReadError):
                kind, details = "failed", ["its process has ended"]
            if kind != "ready":
                raise SandboxError(f"a box cannot be opened: {details[0]}")
            box.form, box.folder, box.temporary, box.tree = details
            yield box
        finally:
            await asyncio.shield(box.close())

    async def close(self) -> None:
        """End all boxes."""
        if self._process is not None:
            self._control.close()
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def _rules(self, spec: BoxSpec) -> AccessRules:
        """What a box shows of the machine, and its user."""
        usual, tree = usual_rules(), str(spec.tree.resolve())
        if spec.image:
            spec, usual = spec._replace(roots=()), usual._replace(visible=(NULL,), covered=())
        roots = tuple(str(path) for root in spec.roots for path in (root, *base_of(root)))
        other_user = os.getuid() == 0 and not {"namespaces", "user"}.isdisjoint(self._required)
        return usual._replace(
            packages=roots,
            readable=(*usual.readable, *roots, tree),
            user=BOX_USER if other_user else None,
        )

    def _zygote(self) -> socket.socket:
        """The socket of the process that forks boxes. Raises OSError."""
        if self._process is None or self._process.poll() is not None:
            self._control, self._process = start_python(
                ZYGOTE, socket.SOCK_SEQPACKET, stdout=subprocess.DEVNULL, start_new_session=True,
                env=ENVIRONMENT,
            )  # fmt: skip
        return self._control


@cache
def usual_rules() -> AccessRules:
    """Those of every box: compilers, the standard library, none of the packages here."""
    rules = access_rules(0, starts_programs=True)
    readable = (path for path in (*rules.readable, *SHOWN) if path not in rules.packages)
    return rules._replace(visible=(*SHOWN, *rules.visible), readable=tuple(readable))


def base_of(root: Path) -> list[Path]:
    """The folder of the interpreter on which a virtual environment stands."""
    with contextlib.suppress(OSError):
        for line in (root / "pyvenv.cfg").read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                return [Path(value.strip()).parent]
    return []
