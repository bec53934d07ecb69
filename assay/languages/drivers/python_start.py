"""Runs as Python starts in a program's folder, and removes itself from there. The sandbox lets
nobody set permissions or times, which landlock does not guard, and shutil.copy sets them.
"""

from __future__ import annotations

import os
import sys


def unless_refused(call):  # type: ignore[no-untyped-def]  # typing would slow each start
    """The call, which does nothing to a file of the program's own where it is refused."""

    def changed(path, *values, **keywords):  # type: ignore[no-untyped-def]
        try:
            call(path, *values, **keywords)
        except PermissionError:
            file = os.fstat(path) if isinstance(path, int) else os.lstat(path)
            if file.st_uid != os.getuid():
                raise

    return changed


if __name__ == "sitecustomize":  # the name of the copy in the folder
    os.chmod, os.utime = map(unless_refused, (os.chmod, os.utime))
    folder, _, _ = __file__.rpartition("/")
    os.unlink(__file__)  # noqa: PTH108
    os.rmdir(folder)  # noqa: PTH106
    sys.path.remove(folder)
