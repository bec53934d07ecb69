"""Unpacked images, to be the root folders of boxes. Docker and Podman are only asked for the files
of images that they hold, and Apptainer for those of its own files; nothing is pulled.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import IO

from assay.archives import tarfile
from assay.content import digest_of
from assay.errors import DataError
from assay.user_cache import added, cache_folder, hold, new_entry

TOOLS = ("docker", "podman")
BUILDER, BUILD = "apptainer", ("build", "--sandbox", "--force")
SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"
"""How a file of Apptainer's begins. All else it takes for a recipe, which runs commands here."""
LISTED = ("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
REGISTRIES = ("docker.io/library/", "docker.io/", "localhost/")
"""What is usually left out of an image's name."""
LOG = logging.getLogger(__name__)
MAKING = RLock()
"""Held by the thread that makes a folder or asks the tools: the others would do the same."""


def image_folder(name: str) -> Path:
    """The unpacked image of this name: an absolute path of a folder or of a file of Apptainer's, or
    an image of Docker's or Podman's. Those are unpacked once, below the user's cache. Raises
    DataError where there is none.
    """
    path = Path(name)
    if path.is_absolute() and path.is_dir():
        return path.resolve()
    is_file = path.suffix == ".sif" and path.is_file()
    tool, image = ("", "") if is_file else local_image(name)

    def fill(folder: Path) -> None:
        LOG.warning("unpacking the image %s, once", name)
        if tool == BUILDER:
            subprocess.run(
                [tool, *BUILD, folder, path.absolute()], check=True, stdout=subprocess.DEVNULL
            )
        else:
            export(tool, image, folder)

    try:
        if is_file:
            with path.open("rb") as file:
                if file.read(len(SIF)) != SIF:
                    raise DataError(f"{name} is no image of Apptainer's; a recipe is not built")
            tool, image = BUILDER, digest_of(path)
        if tool:
            return made_once(f"image-{image.rpartition(':')[2]}", fill).resolve()
    except (
        OSError,
        tarfile.TarError,
        EOFError,
        KeyError,
        ValueError,
        subprocess.SubprocessError,
    ) as error:
        raise DataError(f"the image {name} cannot be unpacked: {error}") from None
    raise DataError(
        f"the image {name} is not here, and assay pulls none: `podman pull {name}` (or docker), or"
        " give the path of its unpacked folder"
    )


def is_here(name: str) -> bool:
    """Whether an image that a stranger's row names can be unpacked: of a tool's, or Apptainer's."""
    return (name.endswith(".sif") and os.path.lexists(name)) or any(local_image(name))


def full_name(name: str) -> str:
    """An image's name without what is usually left out, and with its tag."""
    for registry in REGISTRIES:
        name = name.removeprefix(registry)
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def local_image(name: str) -> tuple[str, str]:
    """The tool that holds an image and the image's id; empty where none does. The tools are asked
    again for a name that they lacked. What a name stands for once is what it stands for in this
    process.
    """
    key = full_name(name)
    with MAKING:
        if key not in local_images():
            local_images.cache_clear()
        return local_images().get(key, ("", ""))


@lru_cache(maxsize=1)
def local_images() -> dict[str, tuple[str, str]]:
    """The images that are here, by full name: the tool that holds each, and its id."""
    images = dict[str, tuple[str, str]]()
    for tool in filter(shutil.which, TOOLS):
        listed = subprocess.run([tool, *LISTED], check=False, capture_output=True, text=True)
        for line in listed.stdout.splitlines():  # none where its daemon does not run
            name, _, image = line.partition(" ")
            images.setdefault(full_name(name), (tool, image))
    return images


def made_once(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of this name below the user's cache, whole or not there. It stays while this process
    lives. Raises OSError.
    """
    folder = cache_folder("trees") / name
    if hold(folder):
        return folder
    with MAKING:
        while not hold(folder):
            partial_folder = new_entry(folder.parent)
            try:
                fill(partial_folder)
                partial_folder.rename(folder)
                added(folder)
            except OSError:
                if not folder.is_dir():  # no other process was faster
                    raise
            finally:
                shutil.rmtree(partial_folder, ignore_errors=True)
    return folder


def export(tool: str, image: str, folder: Path) -> None:
    """Unpack an image that a tool holds. Raises OSError, TarError, SubprocessError."""
    run = partial(subprocess.run, check=True, stdout=subprocess.PIPE, text=True)
    container = run([tool, "create", "--pull=never", image, "true"]).stdout.strip()
    try:
        with subprocess.Popen([tool, "export", container], stdout=subprocess.PIPE) as exporting:
            assert exporting.stdout is not None
            unpack(exporting.stdout, folder)
        if exporting.returncode:
            raise OSError(f"{tool} export ended with status {exporting.returncode}")
    finally:
        run([tool, "rm", container])


class ImageTar(tarfile.TarFile):
    """Makes no device and no pipe, which tarfile does, unfiltered, in the place of a link to one
    that cannot be made.
    """

    def makefifo(self, tarinfo: tarfile.TarInfo, targetpath: object) -> None:
        """Raises SpecialFileError."""
        raise tarfile.SpecialFileError(tarinfo)

    makedev = makefifo


def unpack(stream: IO[bytes], folder: Path) -> None:
    """Unpack a tar file of an image. Raises OSError, TarError."""
    with ImageTar.open(fileobj=stream, mode="r|") as archive:
        archive.extractall(folder, filter=harmless)


def harmless(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """A member as it is unpacked: ours, without set-user-id; no device, no pipe and no hard link to
    what is no file here. Other links may lead anywhere, since only boxes follow them, but nothing
    is written through one. Raises FilterError.
    """
    if member.isdev():
        return None
    for name in [member.name, member.linkname][: 1 + member.islnk()]:
        path = PurePosixPath(name.lstrip("/"))
        written = path.parents if member.issym() else (path, *path.parents)
        if ".." in path.parts or any(Path(folder, part).is_symlink() for part in written):
            raise tarfile.OutsideDestinationError(member, f"{folder}/{path}")
    filtered = (tarfile.tar_filter if member.issym() else tarfile.data_filter)(member, folder)
    return filtered if not member.islnk() or Path(folder, member.linkname).is_file() else None
