"""How an outside agent runs commands in its rollout's box: two programs beside a Unix socket."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from assay.environments.work_box import NO_BYTECODE, OUTPUT_BYTES
from assay.errors import SandboxError, SettingsError
from assay.files import write_atomically
from assay.sandbox.box import Box
from assay.sandbox.program import Ended, Result
from assay.sandbox.sockets import OversizedError, receive, send

log = logging.getLogger(__name__)
MOST_ASKED = 1 << 25
"""Bytes of a command with its standard input."""
ROOT = Path(__file__).parents[2]
CLIENT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from assay.agents.box_command import main; sys.exit(main(sys.argv[1:]))"
)
PROGRAMS = {"ASSAY_BOX": "plain", "ASSAY_DOCKER": "docker"}
"""The variables that name the programs, and the forms of the words that these understand."""
LATE, KILLED, CANNOT = 124, 137, 125
"""Exit statuses of a command whose time was over, that was killed, that could not be run."""


class BoxCommands:
    """Runs the commands that an agent's programs ask for, one after another, each for up to
    `seconds`. What they do can only fail their agent.
    """

    def __init__(self, box: Box, seconds: float) -> None:
        self._box, self._seconds = box, seconds
        self._running: set[asyncio.Task[None]] = set()
        self.failure: SandboxError | None = None
        """Why the machine failed a command, if it did."""

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator[dict[str, str]]:
        """Make the programs in a folder. Yields the variables that an agent needs, and waits in the
        end for the command that runs. Raises SettingsError where the folder's path is too long.
        """
        path = folder / "box.sock"
        try:
            server = await asyncio.start_unix_server(self._serve, path)
        except OSError as error:
            raise SettingsError(
                f"no socket can be made at {path} ({error}); set TMPDIR to a shorter path"
            ) from None
        variables = {"ASSAY_FOLDER": self._box.folder}
        for variable, form in PROGRAMS.items():
            words = [sys.executable, "-I", "-S", "-c", CLIENT, str(ROOT), str(path), form]
            write_atomically(folder / form, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (folder / form).chmod(0o700)
            variables[variable] = str(folder / form)
        try:
            yield variables
        finally:
            server.close()
            while self._running:
                await asyncio.wait(self._running)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            # whoever asked may be gone, and the agent is the user's: what it asks is well formed
            with suppress(ConnectionError, asyncio.IncompleteReadError, OversizedError):
                words, folder, environment, data = await receive(reader, MOST_ASKED)
                send(writer, *await self._answer(words, folder, environment, data))
                await writer.drain()
        finally:
            writer.close()
            self._running.discard(task)

    async def _answer(
        self, words: list[str], folder: str, environment: dict[str, str], data: bytes
    ) -> tuple[int, bytes, bytes]:
        """A status, and what was written to standard output and error."""
        try:
            result = await self._box.run(
                [os.fsencode(word).decode("utf-8", "replace") for word in words],
                wall_seconds=self._seconds, output_bytes=OUTPUT_BYTES, stdin=data,
                environment=NO_BYTECODE | environment, folder=folder,
            )  # fmt: skip
        except SandboxError as error:
            self.failure = error
            return CANNOT, b"", b"assay's box: the machine has failed it\n"
        return status_of(result), result.stdout, result.stderr + self._why(result)

    def _why(self, result: Result) -> bytes:
        """A line for what did not exit by itself."""
        if result.ended is Ended.EXITED:
            return b""
        late = f"the command timed out after {self._seconds:g} seconds"
        why = late if result.ended is Ended.WALL else result.detail
        return f"assay's box: {why}\n".encode()


def status_of(result: Result) -> int:
    """The exit status of a command's program, as `timeout` and shells have it."""
    if result.ended is Ended.EXITED:
        return result.status
    return LATE if result.ended is Ended.WALL else KILLED
