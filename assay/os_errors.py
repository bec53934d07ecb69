"""What an error of the operating system means for the user: whose it is, and what to do."""

import errno
import re

PATH_ERRORS = {
    errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
"""Errors that another path avoids: the user's. All others of the operating system are the
machine's."""
ADVICE = {
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room in your quota and run the same command again",
    errno.EFBIG: "raise the limit (`ulimit -f`) and run the same command again",
    errno.EMFILE: "raise the limit (`ulimit -n`) and run the same command again",
}


def error_number(error: Exception) -> int | None:
    """The `errno` of an operating system's error; None for other errors.

    Libraries written in Rust (safetensors, tokenizers) give it in their text only.
    """
    if isinstance(error, OSError):
        return error.errno or 0
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def advice(error: Exception) -> str:
    """What to do about an operating system's error."""
    number = error_number(error)
    other = "choose another path" if number in PATH_ERRORS else "run the same command again"
    return ADVICE.get(number or 0, other)
