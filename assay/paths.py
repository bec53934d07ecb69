"""Files and paths that users name: read without waiting for a pipe, followed through links."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from assay.errors import DataError, SettingsError


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file of the user's to read it.

    Raises DataError for a pipe or a device, which may have no end, and for a path that no system
    can have; OSError.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # of a settings file: a command line cannot hold it
        raise DataError(f"{str(path)!r} has a null byte; correct the path") from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):  # without O_NONBLOCK, a pipe that nobody writes would hang
            raise DataError(f"{path} is a pipe or a device; write it to a file, and name that")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """All bytes of a file of the user's. Raises as `opened` does."""
    with opened(path) as file:
        return file.read()


def whole_path(word: str) -> str:
    """The whole path of a word of a command that names a file here; any other word as it is. For a
    command that runs in another folder.
    """
    return str(Path(word).absolute()) if Path(word).is_file() else word


def real_path(path: Path) -> Path:
    """The absolute path behind all links. Links in a circle stay, and opening them fails: pathlib's
    `resolve` raises no OSError for them.
    """
    return Path(os.path.realpath(path))


def require_file_place(path: Path) -> None:
    """Raises DataError for a path that no system can have, and OSError unless a file is at `path`
    or could be made there, with the folders that it needs.
    """
    try:
        mode = path.stat().st_mode
    except ValueError:
        raise DataError(f"{str(path)!r} has a null byte; correct the path") from None
    except FileNotFoundError:
        nearest = next(parent for parent in real_path(path).parents if parent.exists())
        if not nearest.is_dir():
            raise _error(errno.ENOTDIR, path) from None
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise _error(errno.EACCES, path) from None
        return
    if stat.S_ISDIR(mode):
        raise _error(errno.EISDIR, path)
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "A pipe or a device is there", str(path))
    if not os.access(path, os.W_OK):
        raise _error(errno.EACCES, path)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def require_output(file: Path, inputs: Iterable[Path]) -> None:
    """Raises SettingsError for a path at which no new file can be made, or that is an input: by its
    name, behind links, as another name of the same file, or inside of a folder of inputs.
    """
    try:
        place = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        place = None
    except (OSError, ValueError) as error:  # such as links in a circle
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"{file} cannot be written ({why}); choose another path") from None
    folder = next((it for it in file.absolute().parents if it.exists()), file)  # / has none
    is_file = place is None or stat.S_ISREG(place.st_mode)
    if not (is_file and folder.is_dir() and os.access(folder, os.W_OK)):
        raise SettingsError(f"{file} cannot be written; choose another path")
    for path in inputs:
        real = real_path(path)
        is_inside = place is not None and real in real_path(file).parents
        if real_path(file) == real or is_inside or (
            place is not None and path.exists() and os.path.samestat(place, path.stat())
        ):  # fmt: skip
            raise SettingsError(f"{file} is read by this command; choose another path")


def is_special(path: Path) -> bool:
    """Whether there is something at `path` that is no file and no folder: a pipe, a device. A file
    must not take its place: nobody but root could bring back /dev/null.
    """
    return path.exists() and not (path.is_file() or path.is_dir())
