"""Runs a command as an ordinary user in a container does: `python -m tests.as_container COMMAND`.

The filter is what Docker's default profile leaves to a process without capabilities: no namespaces,
no mounts, no keyrings. So `assay doctor` says tier C in it. Root becomes `nobody` first.
"""

from __future__ import annotations

import os
import sys

from assay.sandbox import kernel, seccomp

NOBODY = 65_534
REFUSED = (
    "kcmp", "pidfd_getfd", "process_madvise", "migrate_pages", "move_pages", "unshare", "setns",
    "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
    "open_tree", "move_mount", "mount_setattr", "keyctl", "add_key", "request_key", "bpf",
    "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "iopl",
    "ioperm", "lookup_dcookie", "syslog", "open_by_handle_at", "fanotify_init", "quotactl",
    "quotactl_fd", "clock_settime", "settimeofday", "swapon", "swapoff", "reboot", "acct",
    "sethostname", "setdomainname", "vhangup",
)  # fmt: skip
"""Calls that Docker's default profile allows nobody, or only with a capability."""


def container_filter() -> list[seccomp.Instruction]:
    """Refuses as Docker does: clone with namespaces is EPERM, and clone3, whose arguments no filter
    sees, ENOSYS, so that the C library takes clone instead.
    """
    _, at = seccomp.column()
    start = [seccomp._argument(0), (seccomp.ANY_BIT, 0, 1, seccomp.CLONE_NEW)]
    return [
        (seccomp.LOAD, 0, 0, seccomp.NR), *seccomp._refuse_calls(REFUSED, at),
        (seccomp.EQUAL, 0, 1, seccomp.CLONE3[at]), seccomp.UNKNOWN,
        *seccomp._only_for(seccomp.CLONE[at], [*start, seccomp.REFUSE, seccomp.PASS_ON]),
        seccomp.PASS_ON,
    ]  # fmt: skip


def enter() -> None:
    """Become an ordinary user of a container, for good. Raises OSError."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.forgo_privileges()
    seccomp.Filter(container_filter()).load()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("python -m tests.as_container COMMAND: the command is missing")
    enter()
    os.execvp(sys.argv[1], sys.argv[1:])
