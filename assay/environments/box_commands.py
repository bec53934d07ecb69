"""How an outside agent runs commands in its rollout's box: two programs beside a Unix socket."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from assay.environments.work_box import NO_BYTECODE, OUTPUT_BYTES
from assay.errors import RolloutLostError, SandboxError, SettingsError
from assay.files import write_atomically
from assay.sandbox.box import Box
from assay.sandbox.program import Ended, Result
from assay.sandbox.sockets import OversizedError, receive, send
from assay.sync import unless

T = TypeVar("T")
MOST_ASKED = 1 << 25
"""Bytes of a command with its standard input."""
MOST_PATH = 107
"""Bytes of a Unix socket's path."""
MOST_WAITING = 64
"""Commands that may wait for their turn; what comes beyond them is hung up on."""
ROOT = Path(__file__).parents[2]
CLIENT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from assay.agents.box_command import main; sys.exit(main(sys.argv[1:]))"
)
PROGRAMS = {"ASSAY_BOX": "plain", "ASSAY_DOCKER": "docker"}
"""The variables that name the programs, and the forms of the words that these understand."""
CANNOT = 125
"""The exit status of a command that could not be asked for."""


class BoxCommands:
    """Runs the commands that an agent's programs ask for, one after another, each for up to
    `seconds`, or until the program has ended that asked. What they do can only fail their agent.
    """

    def __init__(self, box: Box, seconds: float) -> None:
        self._box, self._seconds = box, seconds
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Task[Any]] = set()
        self._running: asyncio.Task[Any] | None = None
        self._agent: asyncio.Future[Any] | None = None
        self._failure: SandboxError | None = None
        self._folder, self._environment = "", dict[str, str]()
        """What `docker run` said that later commands have."""

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator[dict[str, str]]:
        """Make the programs in a folder. Yields the variables that an agent needs, and in the end
        waits for the command that runs; those that wait for their turn do not run.

        Raises SettingsError where the folder's path is too long, RolloutLostError where the socket
        cannot be made, SandboxError where the machine failed a command.
        """
        path = folder / "box.sock"
        if len(os.fsencode(path)) > MOST_PATH:
            raise SettingsError(
                f"no socket can have the path {path}; set TMPDIR to a folder with a shorter one"
            )
        try:
            server = await asyncio.start_unix_server(self._serve, path)
        except OSError as error:
            raise RolloutLostError(f"the socket of an agent's box: {error}") from None
        try:
            yield {"ASSAY_FOLDER": self._box.folder} | self._made_programs(folder, path)
        finally:
            server.close()
            await self._finish()
        if self._failure is not None:
            raise self._failure

    async def beside(self, agent: Awaitable[T]) -> T:
        """What an agent's run returns; it ends where the machine fails a command. Raises
        SandboxError then.
        """
        self._agent = task = asyncio.ensure_future(agent)
        try:
            return await task
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _made_programs(self, folder: Path, path: Path) -> dict[str, str]:
        variables = {}
        for variable, form in PROGRAMS.items():
            words = [sys.executable, "-I", "-S", "-c", CLIENT, str(ROOT), str(path)]
            text = shlex.join([*words, f"{self._seconds:g}", form])
            write_atomically(folder / form, f'#!/bin/sh\nexec {text} "$@"\n')
            (folder / form).chmod(0o700)
            variables[variable] = str(folder / form)
        return variables

    async def _finish(self) -> None:
        """End what waits, and wait for what runs: the box has no file while a command runs."""
        for task in self._waiting - {self._running}:
            task.cancel()
        if self._running is not None:
            try:
                await asyncio.wait({self._running})
            except asyncio.CancelledError:
                self._running.cancel()
                raise

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._waiting) >= MOST_WAITING:
            writer.close()
            return
        self._waiting.add(task)
        try:
            # whoever asked may be gone
            with suppress(ConnectionError, asyncio.IncompleteReadError, OversizedError):
                request = await read_request(reader)
                if answer := await unless(reader.read(1), self._answer(task, request)):
                    send(writer, *answer)
                    await writer.drain()
        except ValueError as error:
            send(writer, CANNOT, b"", f"assay's box: {error}\n".encode())
        finally:
            self._waiting.discard(task)
            writer.close()

    async def _answer(
        self, task: asyncio.Task[Any], request: tuple[list[str], str, dict[str, str], bytes, bool]
    ) -> tuple[int, bytes, bytes]:
        """A status, and what was written to standard output and error."""
        words, folder, environment, data, merged = request
        if not words:
            self._folder, self._environment = folder, environment
            return 0, b"", b""
        async with self._turn:
            self._running = task
            try:
                result = await self._box.run(
                    words, wall_seconds=self._seconds, output_bytes=OUTPUT_BYTES, stdin=data,
                    merged=merged, folder=folder or self._folder,
                    environment=NO_BYTECODE | self._environment | environment,
                )  # fmt: skip
            except SandboxError as error:
                self._failure = error
                if self._agent is not None:
                    self._agent.cancel()
                return CANNOT, b"", b"assay's box: the machine has failed it\n"
            finally:
                self._running = None
        return result.exit_status, result.stdout, result.stderr + self._why(result)

    def _why(self, result: Result) -> bytes:
        """A line for what did not exit by itself."""
        if result.error:
            return f"assay's box: {os.strerror(result.error)}\n".encode()
        if result.ended is Ended.EXITED:
            return b""
        late = f"the command timed out after {self._seconds:g} seconds"
        why = late if result.ended is Ended.WALL else result.detail
        return f"assay's box: {why}\n".encode()


async def read_request(
    reader: asyncio.StreamReader,
) -> tuple[list[str], str, dict[str, str], bytes, bool]:
    """The next request of a program. Raises ValueError for what is none, and as `receive`."""
    try:
        words, folder, environment, data, merged = await receive(reader, MOST_ASKED)
        texts = [*words, folder, *environment, *environment.values()]
        if b"\0" in b"".join(map(os.fsencode, texts)) or not isinstance(data, bytes):
            raise ValueError
        return words, folder, environment, data, bool(merged)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError("what it is asked is no command") from None
