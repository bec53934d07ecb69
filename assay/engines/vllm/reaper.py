"""Runs a server, and ends all its processes when it ends, on SIGTERM, or when whoever asked for it
is gone.

    python -m assay.engines.vllm.reaper OWNER FOLDER COMMAND...

vLLM's processes outlive one another when one is killed. They are descendants of this process even
then: a subreaper. `FOLDER` is removed when the process with the pid `OWNER` is gone, who would have
done so otherwise.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time

from assay.sandbox import kernel

SUBREAPER = 36
PATIENCE = 10.0
"""Seconds for them to end by themselves: what they hold in shared memory is freed then."""


def keep(owner: int, folder: str, command: list[str]) -> None:
    """Run `command` to its end or the owner's."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    kernel.prctl(SUBREAPER, 1)
    owners = os.pidfd_open(owner)
    server = None
    try:
        if os.getppid() == owner:
            server = subprocess.Popen(command, start_new_session=True)
            select.select([owners, os.pidfd_open(server.pid)], [], [])
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if server:
            _end(server.pid)
        if os.getppid() != owner:
            shutil.rmtree(folder, ignore_errors=True)


def _end(group: int) -> None:
    """First ask the group, then kill whatever descends from here."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while children := kernel.said(f"/proc/self/task/{os.getpid()}/children").split():
        if time.monotonic() > deadline:
            for pid in children:
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
