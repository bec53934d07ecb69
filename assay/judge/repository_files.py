"""The files of a repository task, for prompts and patches."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path

from assay.checks import RepositoryTests
from assay.judge.patches import PatchError, Read, apply, parse, safe_path
from assay.judge.repository_tree import digest_of, made_once, tree_of

MOST_BYTES = 2 << 20
"""Longest file that is read."""
HIDDEN = {".git", "__pycache__"}


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


@lru_cache(maxsize=512)
def files_of(check: RepositoryTests) -> tuple[str, ...]:
    """The paths of all files but git's and caches."""
    paths, root = [], tree_of(check)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted({*folders} - HIDDEN)
        paths += [Path(folder, name).relative_to(root).as_posix() for name in sorted(names)]
    return tuple(paths)


def with_patch(tree: Path, diff: str) -> Path:
    """A copy of a tree with a diff applied, made once below the user's cache. Files that the diff
    leaves alone are links to those of the tree. Raises PatchError, OSError.
    """

    def copy(made: Path) -> None:
        shutil.copytree(tree, made, symlinks=True, copy_function=_link, dirs_exist_ok=True)
        for path, text in apply(parse(diff), reader(RepositoryTests(str(tree), (), ()))).items():
            (made / path).unlink(missing_ok=True)
            if text is not None:
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(text.encode("utf-8", "surrogateescape"))

    key = f"{digest_of(str(tree))} {diff}".encode("utf-8", "surrogatepass")
    return made_once(hashlib.blake2b(key, digest_size=16).hexdigest(), copy)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or a file of another user
        shutil.copy2(source, target)
