"""The trusted copy of a repository, a folder or a tar file that is unpacked once; and its files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.archives import tarfile
from assay.checks import RepositoryTests
from assay.content import digest_of
from assay.errors import DataError
from assay.judge.images import image_folder, made_once
from assay.judge.patches import PatchError, Read, apply, parse, safe_path
from assay.user_cache import cache_folder

MOST_BYTES = 2 << 20
"""Longest file that is read."""
OF_KERNEL = tuple(map(Path, ("/dev", "/proc", "/sys")))
"""Folders without end. What holds one of them is no repository: it would be read and copied."""
HIDDEN = {".git", "__pycache__"}


def tree_of(check: RepositoryTests) -> Path:
    """The folder of a task's tree. Raises DataError where there is none."""
    path = Path(check.tree)
    if check.image:
        image = image_folder(check.image)
        tree = (image / check.tree.lstrip("/")).resolve()
        if not (tree.is_relative_to(image) and tree.is_dir()):
            raise DataError(f"the image {check.image} holds no folder {check.tree}")
    elif path.is_dir():
        tree = path.resolve()
        endless = any(tree in (it, *it.parents) for it in OF_KERNEL)
        if endless or tree.is_relative_to("/proc") or tree.is_relative_to("/sys"):
            raise DataError(f"{tree} holds the machine, or is the kernel's; name a repository")
    elif path.is_file():
        tree = unpacked(path)
    else:
        raise DataError(f"{path} is no folder and no file; it is to hold the task's repository")
    try:
        return with_patch(tree, check.bug) if check.bug else tree
    except (PatchError, OSError) as error:
        raise DataError(f"the bug cannot be put into {tree}: {error}") from None


def unpacked(file: Path) -> Path:
    """The folder of what a tar file holds, made once below the user's cache. Raises DataError."""

    def unpack(target: Path) -> None:
        with tarfile.open(file) as archive:
            archive.extractall(target, filter="data")

    try:
        folder = made_once(digest_of(file), unpack).resolve()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{file} cannot be unpacked: {error}") from None
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def reader(check: RepositoryTests) -> Read:
    """Reads files of a task's tree by path; bytes that are no UTF-8 are surrogates. None for any
    other path, and for what is no ordinary file, too long, or outside, through links.
    """
    root = tree_of(check)

    def read(path: str) -> str | None:
        try:
            file = (root / safe_path(path)).resolve(strict=True)
            inside = file.is_relative_to(root) and file.is_file()
            if inside and file.stat().st_size <= MOST_BYTES:
                return file.read_bytes().decode("utf-8", "surrogateescape")
        except (PatchError, OSError):
            pass
        return None

    return read


def files_of(check: RepositoryTests) -> tuple[str, ...]:
    """The paths of all files but git's and caches, as they are now."""
    paths, root = [], tree_of(check)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted({*folders} - HIDDEN)
        paths += [Path(folder, name).relative_to(root).as_posix() for name in sorted(names)]
    return tuple(paths)


def import_paths(check: RepositoryTests, tree: Path) -> list[str]:
    """The folders that imports search: relative to the tree, but for those outside."""
    if paths := check.environment.get("PYTHONPATH"):
        folders = [path for path in paths.split(":") if path]
        inside = [os.path.relpath(Path(check.tree, path), check.tree) for path in folders]
        return [
            old if new.startswith("../") else new for old, new in zip(folders, inside, strict=True)
        ]
    return [path for path in ("src", ".") if (tree / path).is_dir()]


def modules(paths: Sequence[str], tree: Path) -> list[str]:
    """The names of the tree's own modules and packages."""
    files = (file for path in paths for file in (tree / path).glob("*"))
    names = {file.stem for file in files if file.suffix in ("", ".py")}
    return sorted(names - sys.stdlib_module_names - {"pytest", "_pytest", "pluggy"})


def with_patch(tree: Path, diff: str) -> Path:
    """A copy of a tree with a diff applied, made once below the user's cache. Files that the diff
    leaves alone are links to those of one copy of the tree there: an edit of the tree itself must
    not reach what stands under the key of its old content. Raises PatchError, OSError.
    """
    digest, home = digest_of(tree), cache_folder("trees").resolve()

    def copy_whole(target: Path) -> None:
        shutil.copytree(tree, target, symlinks=True, dirs_exist_ok=True)
        if digest_of(target) != digest:
            raise OSError(f"{tree} changed while it was copied; try again")

    def copy(target: Path) -> None:
        base = tree if tree.is_relative_to(home) else made_once(digest, copy_whole)
        shutil.copytree(base, target, symlinks=True, copy_function=_link, dirs_exist_ok=True)
        for path, text in apply(parse(diff), reader(RepositoryTests(str(base), (), ()))).items():
            if not (target / path).parent.resolve().is_relative_to(target.resolve()):
                raise PatchError(f"{path} leads out of the tree")
            (target / path).unlink(missing_ok=True)
            if text is not None:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(text.encode("utf-8", "surrogateescape"))

    key = f"{digest} {diff}".encode("utf-8", "surrogatepass")
    return made_once(hashlib.blake2b(key, digest_size=16).hexdigest(), copy)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or a file of another user
        shutil.copy2(source, target)
