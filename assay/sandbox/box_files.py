"""What is done with the files of a box: by a child of its init that may do no more than a command,
in the work folder, while no command runs. A command may have left anything there.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

CHUNK = 1 << 20
LEFT_OUT = (".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Names that are no part of a diff, wherever they stand."""
GIT_DIFF = ("git", "-c", "core.quotePath=false", "-c", "diff.renames=false", "diff", "--no-index",
            "--no-prefix", "--binary", "--full-index", "--no-color", "--no-ext-diff",
            "--no-textconv", "a", "b")  # fmt: skip
"""It exits with status 1 where there is a difference."""


def write(files: Sequence[tuple[str, bytes, bool]]) -> None:
    """Write files: path, content and whether it may be executed. Raises OSError."""
    for path, data, executable in files:
        make_room(path)
        with create(path, executable) as file:
            file.write(data)


def copy(source: str, target: str, paths: Sequence[str]) -> None:
    """Make files and links of the folder `target`, which may be new, what they are in `source`, an
    absolute path; where they are absent, too. Raises OSError.
    """
    os.makedirs(target, exist_ok=True)
    os.chdir(target)
    for path in paths:
        make_room(path)
        lay_out(f"{source}/{path}", path)


def make_room(path: str) -> None:
    """Remove what stands in the way of a file: a link to another folder, a folder of its name.
    Raises OSError.
    """
    folders = path.split("/")[:-1]
    for depth in range(1, len(folders) + 1):
        folder = "/".join(folders[:depth])
        if os.path.islink(folder) or not os.path.isdir(folder):
            remove(folder)
            os.mkdir(folder)
    remove(path)


def remove(path: str) -> None:
    """Remove a file, link or folder, unless it is absent. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def create(path: str, executable: bool) -> BinaryIO:
    """A new file. Raises OSError where something is there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return open(os.open(path, flags, 0o755 if executable else 0o644), "wb")


def read(path: str) -> None:
    """Print a file. Raises OSError where it is none that can be read."""
    for chunk in contents(path):
        os.write(1, chunk)


def contents(path: str) -> Iterator[bytes]:
    """The content of a regular file. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        while chunk := file.read(CHUNK):
            yield chunk


def changes(tree: str) -> None:
    """Print the paths of all files of the work folder that are not as in `tree`, caches included, a
    NUL after each.
    """
    os.write(1, b"".join(os.fsencode(path) + b"\0" for path in changed(tree)))


def diff(tree: str) -> None:
    """Become git, which prints how the work folder differs from `tree`. Raises OSError."""
    stage, work = tempfile.mkdtemp(), os.getcwd()
    paths = changed(tree, LEFT_OUT)
    copy(tree, f"{stage}/a", paths)
    copy(work, f"{stage}/b", paths)
    os.chdir(stage)
    os.execvpe(GIT_DIFF[0], GIT_DIFF, {**os.environ, "HOME": "/"})  # nobody's settings


def changed(tree: str, left_out: Collection[str] = ()) -> list[str]:
    """Paths of files and links of the work folder that are not as in `tree`: by type, rights, size
    and time. A command that sets a time hides only its own work.
    """
    before, after = listing(tree, left_out), listing(".", left_out)
    return sorted({path for path, _ in before.items() ^ after.items()})


def listing(root: str, left_out: Collection[str]) -> dict[str, tuple[int, ...]]:
    """What identifies each file and link below a folder, by path, without those of some names. What
    else there may be, as pipes and sockets, is no part of a tree.
    """
    states, folders = dict[str, tuple[int, ...]](), [""]
    for folder in folders:
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                path, state = f"{folder}{entry.name}", entry.stat(follow_symlinks=False)
                kind = stat.S_IFMT(state.st_mode)
                if entry.name in left_out:
                    continue
                if kind == stat.S_IFDIR:
                    folders.append(f"{path}/")
                elif kind in (stat.S_IFREG, stat.S_IFLNK):
                    modes = kind, state.st_mode & 0o111
                    states[path] = *modes, state.st_size, state.st_mtime_ns
    return states


def lay_out(path: str, copy: str) -> None:
    """Copy a file or link, unless it is absent or something else. Raises OSError."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(path), copy)
    elif stat.S_ISREG(mode):
        with create(copy, bool(mode & 0o111)) as file:
            file.writelines(contents(path))
