"""The trusted copy of a repository: a folder, or a tar file that is unpacked once."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from assay.checks import RepositoryTests
from assay.errors import DataError


def tree_of(check: RepositoryTests) -> Path:
    """The folder of a task's tree. Raises DataError where there is none."""
    path = Path(check.tree)
    if path.is_dir():
        return path.resolve()
    if not path.is_file():
        raise DataError(f"{path} is no folder and no file; it is to hold the task's repository")
    return unpacked(path)


@lru_cache(maxsize=512)
def unpacked(file: Path) -> Path:
    """The folder of what a tar file holds, made once below the user's cache. Raises DataError."""

    def unpack(made: Path) -> None:
        with tarfile.open(file) as archive:
            archive.extractall(made, filter="data")

    try:
        digest = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
        folder = made_once(digest, unpack).resolve()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{file} cannot be unpacked: {error}") from None
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def made_once(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of this name below the user's cache, whole or not there. Raises OSError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "assay" / "trees" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        made.chmod(0o755)
        try:
            fill(made)
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # no other process was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


@lru_cache(maxsize=512)
def digest_of(tree: str) -> str:
    """Identifies the content of a folder or file: names, rights and bytes."""
    path, digest = Path(tree), hashlib.blake2b(digest_size=16)
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        mode = file.lstat().st_mode
        digest.update(
            f"{file.relative_to(path)}\0{stat.S_IFMT(mode)}{mode & 0o111}\0".encode(
                errors="surrogateescape"
            )
        )
        if stat.S_ISLNK(mode):
            digest.update(os.fsencode(file.readlink()))
        elif stat.S_ISREG(mode):
            digest.update(hashlib.blake2b(file.read_bytes()).digest())
    return digest.hexdigest()


@lru_cache(maxsize=512)
def packages_of(root: str) -> list[str]:
    """What is installed in a virtual environment, with its versions."""
    return sorted(file.name for file in Path(root).glob("lib/python*/site-packages/*"))
