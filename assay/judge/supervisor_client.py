"""The line to the supervisor: starts it, sends orders, takes executions, and ends every process
behind it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from assay.errors import SandboxError
from assay.judge.wire_job import WireJob
from assay.sandbox.limits import Limits
from assay.types import Execution, Verdict

LENGTH = struct.Struct("!I")
NUMBERED = struct.Struct("!II")
SUPERVISOR = ("-I", "-m", "assay.judge.supervisor")
LOOK_SECONDS = 10.0
LOOKS = 6
"""Looks in a row that find no answer of the supervisor's, after which it is ended."""


class SupervisorClient:
    """A supervisor's other end. `start` before, `close` after use."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._heard = False
        self.broken = "the judge is not started; use `async with Judge() as judge`"
        """Why nothing can be executed; empty while all is well."""

    async def start(self, limits: Limits, slots: int, required: Collection[str]) -> None:
        """Start a supervisor; the `required` walls must stand. Raises SandboxError."""
        ours, self._process = started()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        frame = json.dumps(
            {"limits": asdict(limits), "slots": slots, "required": list(required)}
        ).encode()
        self._writer.write(LENGTH.pack(len(frame)) + frame)
        self.broken = ""
        self._tasks = [
            asyncio.create_task(self._listen(reader)),
            asyncio.create_task(self._watch()),
        ]

    async def execute(self, order: WireJob) -> Execution:
        """Have one job done; cancelled, it is dropped wherever it is. Raises SandboxError when the
        line is broken.
        """
        return execution_of((await self.sent(order))["execution"])

    async def answers(self, order: WireJob) -> tuple[Execution, list[str]]:
        """As `execute`, and what the program answered to the calls whose right value is sought."""
        frame = await self.sent(order)
        return execution_of(frame["execution"]), frame["answers"]

    async def sent(self, order: WireJob) -> dict[str, Any]:
        """What the supervisor says to one order; as `execute`."""
        if self.broken:
            raise SandboxError(self.broken)
        self._number = number = self._number % 0xFFFFFFFF + 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        frame = order.packed()
        self._writer.write(NUMBERED.pack(len(frame) + 4, number) + frame)
        try:
            return await future
        except asyncio.CancelledError:
            self.drop(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def drop(self, number: int) -> None:
        """Nobody waits any longer for what was ordered under a number, or wants the interpreter
        that it opened.
        """
        if not self.broken:
            self._writer.write(NUMBERED.pack(4, number))

    async def close(self) -> None:
        """Hang up and wait until the supervisor has ended everything."""
        self._fail("the judge is closed")
        for task in self._tasks:
            task.cancel()
        self._writer.close()
        for _ in range(
            1000
        ):  # not by a thread: a judge that is closed when Python ends can have none
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.01)
        self._process.kill()
        self._process.wait()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._hear(json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:  # whatever ends this task: nobody may wait for it any longer
            self._fail("the judge's supervisor died")

    def _hear(self, frame: dict[str, Any]) -> None:
        self._heard = True
        if "fatal" in frame:
            self._fail(f"the sandbox fails: {frame['fatal']}")
        elif "number" in frame:
            future = self._waiting.get(frame["number"])
            if future is not None and not future.done():
                future.set_result(frame)

    async def _watch(self) -> None:
        """End a supervisor that stays silent; counted in looks, since the loop of the trainer may
        stand still too.
        """
        silent = 0
        while silent < LOOKS:
            self._heard = False
            self._writer.write(NUMBERED.pack(4, 0))
            await asyncio.sleep(LOOK_SECONDS)
            silent = 0 if self._heard else silent + 1
        self._fail("the judge's supervisor hangs")
        self._process.kill()

    def _fail(self, why: str) -> None:
        self.broken = self.broken or why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(why))


def started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A supervisor that waits for its settings, and our end of its socket. Raises SandboxError."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise SandboxError(f"the judge cannot be started: {error}") from None
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *SUPERVISOR, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                cwd="/",
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise SandboxError(f"the judge cannot be started: {error}") from None
    return ours, process


def execution_of(fields: dict[str, Any]) -> Execution:
    """An execution from its fields in JSON."""
    return Execution(**{**fields, "verdict": Verdict(fields["verdict"])})
