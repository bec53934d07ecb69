"""Opens boxes, each on a tree, through a zygote of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Collection
from functools import cache
from pathlib import Path

from assay.errors import SandboxError
from assay.sandbox.access import access_rules
from assay.sandbox.box import FORMS, ROOM_BYTES, Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.landlock import NULL
from assay.sandbox.namespaces import AccessRules
from assay.sandbox.processes import start_python
from assay.sandbox.program import ENVIRONMENT
from assay.sandbox.sockets import OversizedError, receive
from assay.sandbox.users import UserClaim, claim_user

ZYGOTE = ("-I", "-m", "assay.sandbox.box_zygote")


SHOWN = ("/usr/sbin", "/sbin", "/usr/share", "/etc/ssl/certs")
"""What commands may read beside that which compilers may."""


async def describe_boxes(required: Collection[str]) -> str:
    """Says what boxes are here, by opening one with these walls, or why there are none."""
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
    """Opens boxes, from a process that is started for the first one, in any thread. required: the
    walls that each must put up.
    """

    def __init__(self, required: Collection[str]) -> None:
        self._required = list(required)
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.asynccontextmanager
    async def open(self, spec: BoxSpec) -> AsyncIterator[Box]:
        """Opens a box until the block ends. Raises SandboxError where it cannot be opened."""
        if spec.image and "namespaces" not in self._required:
            raise SandboxError(f"the image {spec.image} needs namespaces: tier A of assay doctor")
        if spec.writable and "namespaces" not in self._required:
            folders = " and ".join(spec.writable)
            raise SandboxError(f"a box with {folders} needs namespaces: tier A of assay doctor")
        root = spec.image or ""
        homes = ENVIRONMENT["PATH"].split(":")
        if not any(os.path.lexists(f"{root}{home}/git") for home in homes):
            raise SandboxError(f"boxes need git in {root}/usr/bin; install it (apt install git)")
        ours, theirs = socket.socketpair()
        with theirs:
            sent = spec._replace(tree=spec.tree.resolve(), roots=(), environment={})
            claim = claim_user()
            rules = self._rules(spec, claim.user)
            data = json.dumps([self._required, rules, sent], default=str).encode()
            try:
                control, process = self._zygote()
                socket.send_fds(control, [data], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise SandboxError(f"no box can be opened: {error}") from None
        reader, writer = await asyncio.open_connection(sock=ours)
        box = Box(spec, reader, writer, process)
        try:
            try:
                kind, *details = await receive(reader, ROOM_BYTES)
            except (OSError, asyncio.IncompleteReadError, OversizedError):
                kind, details = "failed", ["its process has ended"]
            if kind != "ready":
                raise SandboxError(f"a box cannot be opened: {details[0]}")
            box.form, box.folder, box.temporary, box.tree = details
            yield box
        finally:
            await asyncio.shield(_close(box, claim))

    async def close(self) -> None:
        """Ends all boxes."""
        if self._process is not None:
            self._control.close()
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def _rules(self, spec: BoxSpec, user: int | None) -> AccessRules:
        """What a box shows of the machine, and the user of its commands, where it can be one."""
        usual, tree = usual_rules(), str(spec.tree.resolve())
        if spec.image:
            spec, usual = spec._replace(roots=()), usual._replace(visible=(NULL,), covered=())
        roots = tuple(str(path) for root in spec.roots for path in (root, *base_of(root)))
        other_user = not {"namespaces", "user"}.isdisjoint(self._required)
        return usual._replace(
            packages=roots,
            readable=(*usual.readable, *roots, tree),
            user=user if other_user else None,
        )

    def _zygote(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        """The process that forks boxes, and its socket. Raises OSError."""
        with self._starting:  # a second one would replace the first, whose boxes would end with it
            if self._process is None or self._process.poll() is not None:
                self._control, self._process = start_python(
                    ZYGOTE, socket.SOCK_SEQPACKET, stdout=subprocess.DEVNULL,
                    start_new_session=True, env=ENVIRONMENT,
                )  # fmt: skip
            return self._control, self._process


async def _close(box: Box, claim: UserClaim) -> None:
    """End a box, and then leave its user to others."""
    try:
        await box.close()
    finally:
        claim.release()


@cache
def usual_rules() -> AccessRules:
    """Those of every box: compilers, the standard library, none of the packages here."""
    rules = access_rules(None, starts_programs=True)
    readable = (path for path in (*rules.readable, *SHOWN) if path not in rules.packages)
    return rules._replace(visible=(*SHOWN, *rules.visible), readable=tuple(readable))


def base_of(root: Path) -> list[Path]:
    """The folder of the interpreter on which a virtual environment stands, and its programs, which
    count where parts of the folder are shown already.
    """
    with contextlib.suppress(OSError):
        for line in (root / "pyvenv.cfg").read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                home = Path(value.strip())
                programs = (home / name for name in ("python3", "python"))
                real = {Path(os.path.realpath(program)) for program in programs}
                return [home.parent, home, *real, home / "python3", home / "python"]
    return []
