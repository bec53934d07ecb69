"""Runs an agent, and ends all its processes when it ends, on SIGTERM, or when assay is gone.

    python -m assay.agents.reaper OWNER FOLDER BYTES COMMAND...

This process is the agent's subreaper, so what leaves the agent's group or session stays its
descendant. The agent is ended too when it has written more than so many bytes to one of its
standard files. Its exit status is passed on; 128 and a signal's number where one ended it. The
descriptor whose number is in ASSAY_REPORT_FD becomes the agent's descriptor 3, which a shell can
name, and is no longer this process's.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from functools import partial

from assay.sandbox import kernel

REPORT = "ASSAY_REPORT_FD"
"""Numbers the descriptor to which an agent writes its report, where it makes one."""
REPORT_FD = 3
LOOKS_SECONDS = 0.2
"""How often the size of the standard files is looked at."""
PATIENCE_SECONDS = 5.0
"""Time in which all killed processes must be gone; one of another user cannot be killed."""


def _moved_report() -> list[int]:
    """The descriptor of the report with its new number, which is free: no other is open yet."""
    if REPORT not in os.environ:
        return []
    number = int(os.environ[REPORT])
    os.environ[REPORT] = str(REPORT_FD)
    if number != REPORT_FD:
        os.dup2(number, REPORT_FD)
        os.close(number)
    return [REPORT_FD]


def supervise(owner: int, folder: str, most_bytes: int, command: list[str]) -> int:
    """Run `command` until it or the owner exits, and return its exit status."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    reports = _moved_report()
    owner_fd = os.pidfd_open(owner)
    agent = None
    try:
        if os.getppid() != owner:
            return 1
        agent = subprocess.Popen(
            command, cwd=folder, start_new_session=True, pass_fds=reports,
            preexec_fn=partial(kernel.die_with_parent, os.getpid()),
        )  # fmt: skip
        for descriptor in reports:
            os.close(descriptor)
        agent_fd = os.pidfd_open(agent.pid)
        while not select.select([owner_fd, agent_fd], [], [], LOOKS_SECONDS)[0]:
            if max(os.fstat(number).st_size for number in (1, 2)) > most_bytes:
                agent.kill()
        status = agent.poll()
        return 128 + signal.SIGKILL if status is None else status if status >= 0 else 128 - status
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if agent:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(agent.pid, signal.SIGKILL)
        kernel.end_children(most=PATIENCE_SECONDS)


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
