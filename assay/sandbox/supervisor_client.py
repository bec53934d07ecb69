"""The sandbox, for the trainer: runs untrusted programs in processes of a supervisor of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any

from assay.errors import SandboxError
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
from assay.sandbox.fair_use import CLIENT
from assay.sandbox.limits import Limits
from assay.sandbox.processes import start_python
from assay.sandbox.program import Ended, Program, Result, SupervisorSettings
from assay.sandbox.sockets import OversizedError, receive, send

SUPERVISOR = ("-I", "-m", "assay.sandbox.supervisor")
RESULT_BYTES = 1 << 31
"""Most bytes of a result with its output and its files, which have bounds of their own."""
LOOK_SECONDS = 10.0
LOOKS = 6
"""A supervisor that does not answer so many looks in a row is killed."""


class Sandbox:
    """Runs programs. Call `start` before and `close` after use.

    zygote: the module that each zygote runs, which warms up and forks.
    """

    def __init__(self, zygote: str) -> None:
        self._zygote = zygote
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._number = 0
        self._answered = False
        self.broken = "the judge is not started; use `async with Judge() as judge`"
        """Why nothing can run; empty while all is well."""

    async def start(
        self, limits: Limits, slots: int, required: Collection[str], reads: Collection[str] = ()
    ) -> None:
        """Start a supervisor whose zygotes put up the `required` walls. Programs that are started
        by exec may read what `reads` names, too. Raises SandboxError.
        """
        walls = list(required)
        settings = SupervisorSettings(asdict(limits), slots, walls, self._zygote, list(reads))
        try:
            ours, self._process = start_python(
                SUPERVISOR, socket.SOCK_STREAM, json.dumps(settings),
                stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"the judge cannot be started: {error}") from None
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self.broken = ""
        self._boxes = Boxes(walls)
        self._tasks = [
            asyncio.create_task(self._listen(reader)),
            asyncio.create_task(self._watch()),
        ]

    @property
    def pid(self) -> int:
        """The supervisor's process, once it is started."""
        return self._process.pid

    async def run(self, program: Program) -> Result:
        """Run one program, for the CLIENT of the task. Cancelled, it is dropped wherever it is.
        Raises SandboxError when the supervisor has failed.
        """
        if self.broken:
            raise SandboxError(self.broken)
        self._number = number = self._number % 0xFFFFFFFF + 1
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        send(self._writer, number, CLIENT.get(), *program)
        try:
            result: Result = await future
            return result
        except asyncio.CancelledError:
            self.drop(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def box(self, spec: BoxSpec) -> AbstractAsyncContextManager[Box]:
        """A box, until the block ends. Raises SandboxError where it cannot be opened."""
        if self.broken:
            raise SandboxError(self.broken)
        return self._boxes.open(spec)

    def drop(self, number: int) -> None:
        """Cancel the program with this number, or end the process that it left open."""
        if not self.broken:
            send(self._writer, number)

    async def close(self) -> None:
        """Hang up, and wait until the supervisor has ended everything."""
        self._fail("the judge is closed")
        await self._boxes.close()
        for task in self._tasks:
            task.cancel()
        self._writer.close()
        # not in a thread: where Python is ending, a judge that is closed can start none
        for _ in range(1000):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.01)
        self._process.kill()
        self._process.wait()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            ends = asyncio.IncompleteReadError, ConnectionError, OversizedError
            with contextlib.suppress(*ends):
                while True:
                    self._on_frame(*await receive(reader, RESULT_BYTES))
        finally:  # whatever ends this task: nobody may wait for it any longer
            self._fail("the judge's supervisor died")

    def _on_frame(self, kind: str, *values: Any) -> None:
        self._answered = True
        if kind == "fatal":
            self._fail(f"the sandbox fails: {values[0]}")
        elif kind == "result":
            number, ended, *fields = values
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(Result(Ended(ended), *fields))

    async def _watch(self) -> None:
        """Kill a supervisor that stays silent. Looks are counted, not seconds: the trainer's own
        loop may stand still too.
        """
        silent = 0
        while silent < LOOKS:
            self._answered = False
            send(self._writer, 0)
            await asyncio.sleep(LOOK_SECONDS)
            silent = 0 if self._answered else silent + 1
        self._fail("the judge's supervisor hangs")
        self._process.kill()

    def _fail(self, why: str) -> None:
        self.broken = self.broken or why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(why))
