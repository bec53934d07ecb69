"""assay's boxes as a sandbox of inspect_ai: `sandbox="assay"`, or `("assay", "a/folder")` for the
files of a folder.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from assay.errors import SandboxError
from assay.integrations.lent_box import LONGEST_SECONDS, USERS, CommandCause, Finished, LentBox
from assay.sandbox.cores import cores

__all__ = ["AssayBox", "BoxConfig"]
REFUSED = (errno.EACCES, errno.EPERM)


class BoxConfig(BaseModel):
    """What a box is to be, as the arguments of `LentBox.open`: `SandboxEnvironmentSpec("assay",
    BoxConfig(tree="a/folder"))`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str | None = None
    """The folder whose files the work folder holds; it stays as it is."""
    folder: str = "/testbed"
    """The path of the work folder."""
    roots: tuple[str, ...] = ()
    """Folders with an interpreter or tools, which are there at the same paths, read-only."""
    image: str | None = None
    """An unpacked image whose folder is `/`."""
    environment: tuple[tuple[str, str], ...] = ()
    """Names and values of variables of all commands."""
    writable: tuple[str, ...] = ()
    """More folders that commands may write to."""
    memory_mb: int = 4096
    size_mb: int = 2048
    processes: int = 512


@sandboxenv(name="assay")
class AssayBox(SandboxEnvironment):
    """A box for each sample. Its commands take turns, and what one has started ends with it."""

    def __init__(self, box: LentBox) -> None:
        super().__init__()
        self._box = box

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command, once: one whose time is up is not retried.

        Raises TimeoutError, PermissionError for what is no program, OutputLimitExceededError,
        SandboxUserUnsupportedError for another user, SandboxUnavailableError where the box has
        ended.
        """
        if user not in USERS:
            raise SandboxUserUnsupportedError(f"a box of assay has one user, and no {user!r}")
        data = input.encode() if isinstance(input, str) else input or b""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        with unavailable():
            done = await self._box.run(
                cmd, folder=cwd or "", environment=env, stdin=data, output_bytes=limit,
                seconds=LONGEST_SECONDS if timeout is None else timeout,
            )  # fmt: skip
        return result_of(done, cmd)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file. Raises IsADirectoryError, and PermissionError for any other that cannot be
        written.
        """
        data = contents.encode() if isinstance(contents, str) else contents
        with unavailable(), in_terms_of(PermissionError, file):
            await self._box.put(file, data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """The content of a file. Raises FileNotFoundError, PermissionError, IsADirectoryError,
        UnicodeDecodeError and OutputLimitExceededError.
        """
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with unavailable(), in_terms_of(FileNotFoundError, file):
            data = await self._box.get(file, limit)
        return data.decode() if text else data

    @classmethod
    def default_concurrency(cls) -> int | None:
        """How many boxes are open together, unless max_sandboxes says so."""
        return 2 * cores()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """As SandboxEnvironment."""
        return BoxConfig(**config)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """Open the box of a sample. Raises DataError, SettingsError and SandboxError."""
        settings = config if isinstance(config, BoxConfig) else BoxConfig(tree=config)
        box = await LentBox.open(
            Path(settings.tree) if settings.tree else None,
            folder=settings.folder,
            roots=[Path(root) for root in settings.roots],
            image=Path(settings.image) if settings.image else None,
            environment=dict(settings.environment),
            writable=settings.writable,
            memory_mb=settings.memory_mb,
            size_mb=settings.size_mb,
            processes=settings.processes,
        )
        return {"default": cls(box)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Close the boxes of a sample."""
        boxes = [environment.as_type(cls)._box for environment in environments.values()]
        await asyncio.gather(*(box.close() for box in boxes))


class LateError(TimeoutError):
    """The time of a command was up."""

    def __init__(self, message: str, truncated_output: str) -> None:
        super().__init__(message)
        self.truncated_output = truncated_output
        """What it had written; inspect_ai looks for this name."""


def result_of(done: Finished, cmd: list[str]) -> ExecResult[str]:
    """What came of a command, in inspect_ai's terms."""
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if done.error in REFUSED:
        raise PermissionError(done.error, done.detail, cmd[0])
    if done.cause is CommandCause.BOX_ENDED:
        raise SandboxUnavailableError(f"this or an earlier command has ended the box of {cmd[0]!r}")
    if done.cause is CommandCause.TIME:
        raise LateError(f"the command {done.detail}", out + err)
    if done.left_out:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, out + err)
    if done.cause is CommandCause.MEMORY:
        err += f"the command was ended: {done.detail}\n"
    return ExecResult(done.ok, done.status, out, err)


@contextmanager
def unavailable() -> Iterator[None]:
    """Says in inspect_ai's terms that there is no box any more."""
    try:
        yield
    except SandboxError as error:
        raise SandboxUnavailableError(str(error)) from error


@contextmanager
def in_terms_of(usual: type[OSError], file: str) -> Iterator[None]:
    """Raises what inspect_ai shows to a model: `usual` for what has no error of its own, as a name
    that is too long.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, TimeoutError):
        raise
    except OSError as error:
        if error.errno is None:
            raise SandboxUnavailableError(str(error)) from error
        if error.errno == errno.EFBIG and usual is FileNotFoundError:
            limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(limit, None) from None
        raise usual(error.errno, os.strerror(error.errno), file) from None
