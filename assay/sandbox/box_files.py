"""What is done with the files of a box: by a child of its init that may do no more than a command,
in the work folder, while no command runs. A command may have left anything there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

CHUNK = 1 << 20
FILE_BYTES = 512
"""About what a diff says of a file beside its content."""
NAMES, NAME = 3, 100
"""Files that are named where more are left out, and characters of each name."""
LEFT_OUT = (".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Names that are no part of a diff, wherever they stand."""
GIT_DIFF = ("git", "-c", "core.quotePath=false", "-c", "diff.renames=false", "diff", "--no-index",
            "--no-prefix", "--binary", "--full-index", "--no-color", "--no-ext-diff",
            "--no-textconv", "a", "b")  # fmt: skip
"""It exits with status 1 where there is a difference."""
REPOSITORY = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
    "\tlogallrefupdates = true\n",
    "info/attributes": "* -text !eol !ident !filter !working-tree-encoding !diff\n",
    "objects/info/packs": "",
    "refs/heads/.keep": "",
}
"""An empty git repository by paths in `.git`: `git init` needs chmod. Its attributes win over those
in the tree, by which git would store and show other bytes than there are.
"""


def write(files: Sequence[tuple[str, bytes, bool]]) -> None:
    """Write files: path, content and whether it may be executed. Raises OSError."""
    folders = {""}
    for path, data, executable in files:
        make_room(path, folders)
        with create(path, executable) as file:
            file.write(data)


def copy(source: str, target: str, paths: Sequence[str]) -> None:
    """Make files and links of the folder `target`, which may be new, what they are in `source`, an
    absolute path; where they are absent, too. Raises OSError.
    """
    os.makedirs(target, exist_ok=True)
    os.chdir(target)
    folders, theirs = {""}, {""}
    for path in paths:
        if leads_to(path, theirs, source) and is_content(f"{source}/{path}"):
            make_room(path, folders)
            lay_out(f"{source}/{path}", path)
        elif leads_to(path, folders):
            clear(path, folders)


def make_room(path: str, folders: set[str]) -> None:
    """Remove what stands in the way of a file: a link to another folder, a folder of its name.
    folders: those that are known to be no links, to which its own are added. Raises OSError.
    """
    for folder in unknown_above(path, folders):
        if os.path.islink(folder) or not os.path.isdir(folder):
            remove(folder)
            os.mkdir(folder)
        folders.add(folder)
    clear(path, folders)


def unknown_above(path: str, folders: Collection[str]) -> list[str]:
    """The folders above a path that are not among these, the outermost first. A deep tree so costs
    one look a folder, not one a folder and file.
    """
    lacking, folder = list[str](), path.rpartition("/")[0]
    while folder not in folders:
        lacking.append(folder)
        folder = folder.rpartition("/")[0]
    return lacking[::-1]


def leads_to(path: str, folders: set[str], root: str = ".") -> bool:
    """Whether all above a path below `root` are folders, and no links. folders: as of make_room."""
    for folder in unknown_above(path, folders):
        place = f"{root}/{folder}"
        if os.path.islink(place) or not os.path.isdir(place):
            return False
        folders.add(folder)
    return True


def is_content(path: str) -> bool:
    """Whether a file or link is there, and not a folder, pipe or nothing. Raises OSError."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def clear(path: str, folders: set[str]) -> None:
    """Remove what stands at a path, which is then none of the known folders. Raises OSError."""
    if path in folders:
        folders -= {each for each in folders if f"{each}/".startswith(f"{path}/")}
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


def put(path: str, data: bytes, executable: bool) -> None:
    """Write a file, in folders that are made where they lack, with the rights of a command: what it
    may not write to stays as it is. Raises OSError.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK  # a pipe that nobody reads would block
    descriptor = os.open(path, flags, 0o755 if executable else 0o644)
    mode = regular_mode(descriptor, path)
    with open(descriptor, "wb") as file:
        file.truncate()
        file.write(data)
    if executable and not mode & 0o111:
        os.chmod(path, stat.S_IMODE(mode) | 0o111)


def get(path: str, most: int) -> None:
    """Print a file of up to `most` bytes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    regular_mode(descriptor, path)
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    for at in range(0, len(data), CHUNK):
        os.write(1, data[at : at + CHUNK])


def regular_mode(descriptor: int, path: str) -> int:
    """The mode of an open file. Raises OSError for a folder, pipe or device."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, os.strerror(number), path)
    return mode


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


def diff(tree: str, temporary: str, most: int = 0) -> None:
    """Become git, which prints how the work folder differs from `tree`. With `most`, only of files
    that can be read and take no more bytes than that together; the first line of standard error
    then says which are left out, and `temporary` is emptied. Raises OSError.
    """
    work, skipped = os.getcwd(), list[str]()
    if most:  # the disk may be full of what commands have left
        empty(temporary)
    stage = tempfile.mkdtemp(dir=temporary)
    paths = changed(tree, LEFT_OUT, skipped if most else None)
    if most:
        paths, left_out = fitting(tree, readable(paths, skipped), most)
        os.write(2, f"{in_words([*skipped, *left_out])}\n".encode("utf-8", "replace"))
    copy(tree, f"{stage}/a", paths)
    copy(work, f"{stage}/b", paths)
    os.chdir(stage)
    write([(f".git/{path}", text.encode(), False) for path, text in REPOSITORY.items()])
    os.execvpe(
        GIT_DIFF[0], GIT_DIFF, {**os.environ, "HOME": "/"}
    )  # nobody's settings nor repository


def empty(folder: str) -> None:
    """Remove what can be removed of what lies in a folder."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            remove(f"{folder}/{name}")


def fitting(tree: str, paths: Sequence[str], most: int) -> tuple[list[str], list[str]]:
    """Of changed files those that take up to `most` bytes together, files of the tree first and the
    small before the large; and the others.
    """
    sizes = {path: size_of(f"{tree}/{path}") + size_of(path) for path in paths}
    order = sorted(paths, key=lambda path: (not os.path.lexists(f"{tree}/{path}"), sizes[path]))
    used, fits = 0, list[str]()
    for path in order:
        size = sizes[path] + FILE_BYTES
        if used + size <= most:
            used += size
            fits.append(path)
    return sorted(fits), sorted({*paths}.difference(fits))


def readable(paths: Sequence[str], skipped: list[str]) -> list[str]:
    """The paths that do not lie in folders that were skipped, and of the files that are there those
    that can be read; others are added to `skipped`.
    """
    outside = [path for path in paths if not any(map(path.startswith, skipped))]
    hidden = {path for path in outside if not os.access(path, os.R_OK) and os.path.isfile(path)}
    skipped += sorted(hidden)
    return [path for path in outside if path not in hidden]


def size_of(path: str) -> int:
    """The bytes of a file or link; 0 where it is absent."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def in_words(paths: Sequence[str]) -> str:
    """Names the first of these files and says how many there are; empty without any."""
    more = f" and {len(paths) - NAMES} more files" if len(paths) > NAMES else ""
    return ", ".join(repr(path[-NAME:]) for path in paths[:NAMES]) + more


def changed(
    tree: str, left_out: Collection[str] = (), skipped: list[str] | None = None
) -> list[str]:
    """Paths of files and links of the work folder that are not as in `tree`: by type, rights, size
    and time. A command that sets a time hides only its own work. Folders that cannot be read are
    added to `skipped`; without that OSError is raised.
    """
    before, after = listing(tree, left_out), listing(".", left_out, skipped)
    return sorted({path for path, _ in before.items() ^ after.items()})


def listing(
    root: str, left_out: Collection[str], skipped: list[str] | None = None
) -> dict[str, tuple[int, ...]]:
    """What identifies each file and link below a folder, by path, without those of some names. What
    else there may be, as pipes and sockets, is no part of a tree. Folders that cannot be read are
    added to `skipped`; without that OSError is raised.
    """
    states, folders = dict[str, tuple[int, ...]](), [""]
    for folder in folders:
        try:
            for name, state in entries_of(f"{root}/{folder}", left_out):
                kind = stat.S_IFMT(state.st_mode)
                if kind == stat.S_IFDIR:
                    folders.append(f"{folder}{name}/")
                elif kind in (stat.S_IFREG, stat.S_IFLNK):
                    modes = kind, state.st_mode & 0o111
                    states[f"{folder}{name}"] = *modes, state.st_size, state.st_mtime_ns
        except OSError:
            if skipped is None:
                raise
            skipped.append(folder)
    return states


def entries_of(folder: str, left_out: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    """What lies in a folder, links as such, but for some names. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in left_out:
                yield entry.name, entry.stat(follow_symlinks=False)


def lay_out(path: str, copy: str) -> None:
    """Copy a file or link. Raises OSError."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(path), copy)
    else:
        with create(copy, bool(mode & 0o111)) as file:
            file.writelines(contents(path))
