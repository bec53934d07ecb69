"""Runs short programs that use a package, each in a process of its own: what each prints, and the
exception that ends it. It runs in the package's interpreter and uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import site
import sys
import tempfile
import time

SECONDS, MOST_CHARACTERS = 5.0, 1500
"""Most wall time of one program, and what is kept of its output."""


def run(program: str) -> dict[str, str]:
    """What a program prints, and its exception as `name: message`. Nothing where it cannot import
    something.
    """
    output, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(program, "example.py", "exec"), {"__name__": "__main__"})
    except ImportError:  # of what is not installed here: it says nothing of the package
        return {}
    except BaseException as raised:  # noqa: BLE001  a program may raise anything
        kind = type(raised)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        message = f": {raised}" if str(raised) else ""
        error = f"{module}{kind.__qualname__}{message}".strip()
    return {"output": short(output.getvalue()), "error": short(error)}


def short(text: str) -> str:
    """A text, or its start and what says that it goes on."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def in_fork(program: str) -> dict[str, str]:
    """The same in a child, which changes nothing here; one that takes too long has no result."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setpgid(0, 0)
            os.chdir(tempfile.mkdtemp())
            os.dup2(2, 1)
            os.write(theirs, json.dumps(run(program)).encode())
        os._exit(0)
    os.close(theirs)
    data, end = b"", time.monotonic() + SECONDS
    while (left := end - time.monotonic()) > 0 and select.select([ours], [], [], left)[0]:
        if not (part := os.read(ours, 65536)):
            break
        data += part
    os.close(ours)
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.kill(-child, signal.SIGKILL)
    os.waitpid(child, 0)
    with contextlib.suppress(ValueError):
        return dict(json.loads(data))
    return {}


def main() -> None:
    """Read the folders that imports search and the programs; print what came of them."""
    job = json.load(sys.stdin)
    if not job["packages"]:
        site.main()
    sys.path = [*job["paths"], *sys.path, *job["packages"]]
    sys.stdout.write(json.dumps([in_fork(program) for program in job["programs"]]))


if __name__ == "__main__":
    main()
