"""Runs a server and kills all its processes when it exits, on SIGTERM, or when its owner exits.

    python -m assay.engines.vllm.reaper OWNER FOLDER COMMAND...

vLLM's processes survive when one of them is killed. This process is their subreaper, so they stay
its descendants. When the process with the pid `OWNER` is gone, `FOLDER` is removed on its behalf.
The command is another reaper, whose owner is this one (0 is its parent): each does the other's work
if that is killed.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys

from assay.sandbox import kernel

PATIENCE = 10.0
"""Seconds in which they may exit by themselves, which frees their shared memory."""


def supervise(owner: int, folder: str, command: list[str]) -> None:
    """Run `command` until it or the owner exits."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    owner_fd = os.pidfd_open(owner)
    server = None
    try:
        if os.getppid() == owner:
            server = subprocess.Popen(command, start_new_session=True)
            select.select([owner_fd, os.pidfd_open(server.pid)], [], [])
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if server:
            _kill(server.pid)
        if os.getppid() != owner:
            shutil.rmtree(folder, ignore_errors=True)


def _kill(group: int) -> None:
    """Send the process group SIGTERM, then SIGKILL all descendants that remain."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
    kernel.end_children(PATIENCE)


if __name__ == "__main__":
    supervise(int(sys.argv[1]) or os.getppid(), sys.argv[2], sys.argv[3:])
