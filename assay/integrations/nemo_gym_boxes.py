"""assay's boxes as a sandbox provider of NeMo Gym: `AsyncSandbox({"assay": {}}, spec)`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from nemo_gym.sandbox import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

from assay.errors import AssayError, SandboxError
from assay.integrations.lent_box import USERS, CommandCause, Finished, LentBox
from assay.judge.images import image_folder

log = logging.getLogger(__name__)
NO_PROCESS = 125
"""The exit status by which NeMo Gym's providers say that a command had none."""
OUTPUT_BYTES = 10 << 20
MIB_OF_GIB = 1024


@dataclass
class Lent:
    """A box and what is known of it; NeMo Gym hands it back with each call."""

    box: LentBox
    status: SandboxStatus = SandboxStatus.RUNNING


class BoxProvider:
    """Opens a box for each sandbox. Its commands take turns, and what one has started ends with it,
    so no server stays between commands.

    A spec's `image` is one of Docker's or Podman's on this machine, a `.sif` file or an unpacked
    folder, and its `workdir` is the box's work folder. Its `provider_options` may have a `tree`,
    the folder whose files the work folder begins with, and `roots`, folders of the machine with an
    interpreter or tools, which are shown read-only.
    """

    name = "assay"

    def __init__(
        self, *, folder: str = "/testbed", roots: Sequence[str] = (), memory_mb: int = 4096,
        size_mb: int = 2048, processes: int = 512, seconds: float = 180.0,
    ) -> None:  # fmt: skip
        """seconds: the time of a command for which no `timeout_s` is named. The others are what a
        box has where the spec does not say.
        """
        self._folder, self._roots, self._seconds = folder, tuple(roots), seconds
        self._memory_mb, self._size_mb, self._processes = memory_mb, size_mb, processes

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Open a box. Raises SandboxCreateError where that cannot be, and for what no box has: an
        entrypoint, a GPU.
        """
        require_possible(spec)
        options, resources = spec.provider_options, spec.resources
        size_mb = resources.disk_gib and MIB_OF_GIB * resources.disk_gib
        try:
            async with asyncio.timeout(spec.ready_timeout_s):
                image = await asyncio.to_thread(image_folder, spec.image) if spec.image else None
                box = await LentBox.open(
                    Path(options["tree"]) if "tree" in options else None,
                    folder=spec.workdir or self._folder,
                    roots=[Path(root) for root in (*self._roots, *options.get("roots", ()))],
                    image=image,
                    environment=spec.env,
                    memory_mb=resources.memory_mib or self._memory_mb,
                    size_mb=size_mb or self._size_mb,
                    processes=self._processes,
                )
        except TimeoutError:
            raise SandboxCreateError(f"no box within {spec.ready_timeout_s} s") from None
        except AssayError as error:
            raise SandboxCreateError(str(error)) from error
        return SandboxHandle(f"assay-{uuid4().hex}", self.name, Lent(box))

    async def exec(
        self, handle: SandboxHandle, command: str, *, cwd: str | None = None,
        env: dict[str, str] | None = None, timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:  # fmt: skip
        """Run a command with bash. A command without an exit status of its own has an `error_type`:
        `timeout`, `memory`, `killed`, `not started`, `box ended`, or `sandbox` where the machine
        has failed. Raises ValueError for another user than the box's.
        """
        if user not in USERS:
            raise ValueError(f"a box of assay has one user, and no {user!r}")
        lent: Lent = handle.raw
        try:
            done = await lent.box.run(
                command, folder=cwd or "", environment=env, output_bytes=OUTPUT_BYTES,
                seconds=self._seconds if timeout_s is None else timeout_s,
            )  # fmt: skip
        except SandboxError as error:
            if lent.status is not SandboxStatus.STOPPED:
                lent.status = SandboxStatus.ERROR
            return SandboxExecResult(None, str(error), NO_PROCESS, "sandbox")
        if done.cause is CommandCause.BOX_ENDED:
            lent.status = SandboxStatus.STOPPED
        return result_of(done)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Put a file of this machine into the box, as executable as it is here. Raises OSError."""
        mode, data = await asyncio.to_thread(mode_and_data, source_path)
        await handle.raw.box.put(target_path, data, bool(mode & 0o100))

    async def download_file(
        self, handle: SandboxHandle, source_path: str, target_path: Path
    ) -> None:
        """Write a file of the box to this machine. Raises OSError."""
        data = await handle.raw.box.get(source_path)
        target_path.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(target_path.write_bytes, data)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What the last command, or `close`, has made of the box."""
        lent: Lent = handle.raw
        return lent.status

    async def close(self, handle: SandboxHandle) -> None:
        """End the box and all that runs in it."""
        handle.raw.status = SandboxStatus.STOPPED
        await handle.raw.box.close()

    async def aclose(self) -> None:
        """Nothing of a provider is open beside its boxes."""


def require_possible(spec: SandboxSpec) -> None:
    """Raises SandboxCreateError for what no box has, and warns of what is ignored."""
    if spec.entrypoint:
        raise SandboxCreateError("a box of assay has no entrypoint: run it as a command")
    if spec.resources.gpu:
        raise SandboxCreateError("a box of assay has no GPU")
    options: Mapping[str, Any] = spec.provider_options
    if unknown := sorted(options.keys() - {"tree", "roots"}):
        raise SandboxCreateError(f"a box of assay has a tree and roots, and no option {unknown[0]}")
    for name in ("ttl_s", "cpu"):
        if getattr(spec if name == "ttl_s" else spec.resources, name) is not None:
            log.warning("a box of assay ignores %s", name)


def mode_and_data(path: Path) -> tuple[int, bytes]:
    """The mode and the content of a file."""
    return path.stat().st_mode, path.read_bytes()


def result_of(done: Finished) -> SandboxExecResult:
    """What came of a command, in NeMo Gym's terms."""
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if done.cause is CommandCause.NONE:
        return SandboxExecResult(out, err, done.status)
    kind = "timeout" if done.cause is CommandCause.TIME else done.cause.value
    what = "not started" if done.cause is CommandCause.NOT_STARTED else "ended"
    return SandboxExecResult(
        out, f"{err}the command was {what}: {done.detail}\n", done.status, kind
    )
