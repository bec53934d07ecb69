"""assay's boxes as an environment of Harbor, which then needs no Docker: `harbor run --env
assay.integrations.harbor:AssayEnvironment`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

from assay.errors import DataError, SandboxError
from assay.files import write_atomically
from assay.integrations.lent_box import LONGEST_SECONDS, CommandCause, LentBox
from assay.judge.dockerfiles import Recipe, is_plain, made_tree, recipe_of
from assay.sandbox.kernel import MIB

__all__ = ["AssayEnvironment"]
WRITABLE = ("/logs", "/tests", "/solution", "/installed-agent")
"""Folders of Harbor's, beside the work folder."""
FOLDER = "/app"
"""The work folder of a task that names none."""
OUTPUT_BYTES = 4 * MIB
MOST_MB, MOST_FILES = 1024, 20_000
"""What is downloaded of a folder at most."""
LIST = ("find", ".", "-type", "f", "-print0")


class AssayEnvironment(BaseEnvironment):
    """A task's work folder in a box. A command is ended with all that it has started, all commands
    have one user, and there is no network, so agents that install themselves do not work here.

    roots: folders with an interpreter or tools that the box shows, read-only (`--ek roots=[...]`).
    """

    def __init__(self, *args: Any, roots: list[str] | None = None, **kwargs: Any) -> None:
        self._roots = [Path(root) for root in roots or []]
        self._recipe = Recipe(FOLDER, ())
        self._box: LentBox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """The name that Harbor's results show."""
        return "assay"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """A box has no network, whether or not a task forbids it."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        """Raises ValueError for a task that needs more than its files, in one line."""
        config, has_file = self.task_env_config, (self.environment_dir / "Dockerfile").is_file()
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if (self.environment_dir / name).exists():
                raise ValueError(f"assay's box: the task needs the services of {name}")
        if config.docker_image and not has_file and not is_plain(config.docker_image):
            raise ValueError(f"assay's box: the task needs the image {config.docker_image}")
        default = "" if config.docker_image or has_file else FOLDER
        try:
            self._recipe = recipe_of(self.environment_dir, config.workdir or default)
        except DataError as error:
            raise ValueError(f"assay's box: the task needs {error}") from None

    async def start(self, force_build: bool) -> None:
        """Open the box. There is nothing to build."""
        tree = await asyncio.to_thread(made_tree, self.environment_dir, self._recipe)
        paths = [*(f"{root}/bin" for root in self._roots), "/usr/local/bin:/usr/bin:/bin"]
        self._box = await LentBox.open(
            tree, folder=self._recipe.folder, roots=self._roots, writable=WRITABLE,
            environment={"PATH": ":".join(paths), **self._startup_env()},
        )  # fmt: skip
        await self.ensure_dirs(["/logs/agent", "/logs/verifier", "/logs/artifacts"])

    async def stop(self, delete: bool) -> None:
        """Close the box. Nothing of it stays."""
        if self._box is not None:
            await self._box.close()
            self._box = None

    async def exec(
        self, command: str, cwd: str | None = None, env: dict[str, str] | None = None,
        timeout_sec: int | None = None, user: str | int | None = None,
    ) -> ExecResult:  # fmt: skip
        """Run a command, as the box's only user. Raises RuntimeError where its time is up."""
        done = await self._opened.run(
            command, folder=cwd or "", environment=self._merge_env(env),
            seconds=timeout_sec or LONGEST_SECONDS, output_bytes=OUTPUT_BYTES,
        )  # fmt: skip
        if done.cause is CommandCause.TIME:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        errors = done.stderr.decode("utf-8", "replace")
        if done.cause is not CommandCause.NONE:
            errors += f"{done.detail}\n"
        return ExecResult(
            stdout=done.stdout.decode("utf-8", "replace"), stderr=errors, return_code=done.status
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Put a file into the box."""
        source = Path(source_path)
        data = await asyncio.to_thread(source.read_bytes)
        await self._opened.put(target_path, data, os.access(source, os.X_OK))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Put the files of a folder into one of the box, and empty folders too."""
        home = Path(source_dir)
        folders = [folder for folder, _, _ in os.walk(home)]
        inside = [PurePosixPath(target_dir, *Path(folder).relative_to(home).parts)
                  for folder in folders]  # fmt: skip
        await self._opened.run(("mkdir", "-p", "--", *map(str, inside)))
        for folder, target in zip(folders, inside, strict=True):
            for file in sorted(path for path in Path(folder).iterdir() if path.is_file()):
                await self.upload_file(file, str(target / file.name))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Get a file of the box. Raises OSError where there is none."""
        await self._download(source_path, Path(target_path), MOST_MB * MIB)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Get the regular files of a folder of the box: links and pipes are left there. Raises
        OSError, also for too many files and for more than MOST_MB.
        """
        listed = await self._opened.run(LIST, folder=source_dir, output_bytes=16 * MIB)
        names = listed.stdout.split(b"\0")[:-1]
        if not listed.ok or listed.left_out or len(names) > MOST_FILES:
            why = listed.stderr.decode("utf-8", "replace").strip() or f"{len(names)} files"
            raise OSError(f"{source_dir} in a box cannot be downloaded: {why}")
        target, left = Path(target_dir), MOST_MB * MIB
        target.mkdir(parents=True, exist_ok=True)
        for name in map(os.fsdecode, names):
            left -= await self._download(f"{source_dir}/{name}", target / name, left)

    async def _download(self, path: str, target: Path, most: int) -> int:
        """Get a file of up to `most` bytes. Its size."""
        data = await self._opened.get(path, most)
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_atomically, target, data)
        return len(data)

    @property
    def _opened(self) -> LentBox:
        if self._box is None:
            raise SandboxError("the environment was not started, or has been stopped")
        return self._box
